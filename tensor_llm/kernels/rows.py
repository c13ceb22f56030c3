"""Where the tokens of one step belong: to which sequence, at which place, in which blocks.

Letters: M rows (tokens), S sequences, X blocks of a sequence, W wanted rows."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensor_llm.shapes import check_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """All int64 and contiguous, as the C++ side reads them.

    Raises:
        ValueError: shapes that do not fit together.
    """

    # place of each row's token in its sequence
    position_M: Tensor
    # line of each row's sequence in the table
    sequence_M: Tensor
    # the blocks of each sequence in order; behind its end lies any block
    table_SX: Tensor
    # rows whose logits are wanted, in this order
    wanted_W: Tensor

    def __post_init__(self) -> None:
        check_shape("position_M", self.position_M, None)
        check_shape("sequence_M", self.sequence_M, len(self.position_M))
        check_shape("table_SX", self.table_SX, None, None)
        check_shape("wanted_W", self.wanted_W, None)

    @classmethod
    def of(
        cls,
        position_M: Tensor,
        sequence_M: Tensor,
        table_SX: Tensor,
        wanted_W: Tensor | None = None,
    ) -> "Rows":
        """By default the logits of all rows are wanted."""
        if wanted_W is None:
            wanted_W = torch.arange(len(position_M))
        return cls(
            position_M=position_M.to(torch.int64).contiguous(),
            sequence_M=sequence_M.to(torch.int64).contiguous(),
            table_SX=table_SX.to(torch.int64).contiguous(),
            wanted_W=wanted_W.to(torch.int64).contiguous(),
        )

    def check(self, blocks: int, block_tokens: int) -> None:
        """
        Raises:
            ValueError: a number that points outside of what it may.
        """
        _check_range("position_M", self.position_M, self.table_SX.shape[1] * block_tokens)
        _check_range("sequence_M", self.sequence_M, len(self.table_SX))
        needed_M = self.position_M // block_tokens
        at_X = torch.arange(self.table_SX.shape[1])
        table_MX = self.table_SX[self.sequence_M]
        _check_range("table_SX", table_MX[at_X <= needed_M[:, None]], blocks)
        _check_range("wanted_W", self.wanted_W, len(self.position_M))


def _check_range(name: str, tensor: Tensor, end: int) -> None:
    if tensor.numel() and (int(tensor.min()) < 0 or int(tensor.max()) >= end):
        found = f"{int(tensor.min())} to {int(tensor.max())}"
        raise ValueError(f"{name} has {found}: allowed is 0 to {end - 1}")
