"""One step of the model over the tokens of several sequences, as tensors on the device.

Knows nothing of who the sequences are.

Letters: M tokens of the step, S rows of the block table, X blocks of a sequence, W rows whose
logits are wanted."""

import dataclasses
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """Tokens of one sequence that follow each other."""

    # where they lie among the step's tokens
    first: int
    count: int
    # the sequence's row in the block table
    sequence: int
    # position of the first in its sequence: so many tokens are in blocks already
    start: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StepBatch:
    """First a token of each decoding sequence, then the chunks; all int64.

    The tensors are views of memory that stays in place from step to step.
    """

    token_M: Tensor
    # place of each token in its sequence
    position_M: Tensor
    # row of each token's sequence in the table
    sequence_M: Tensor
    # blocks of the running sequences in order; behind a sequence's end lies any block
    table_SX: Tensor
    # which of the M rows' logits are wanted, in this order
    wanted_W: Tensor
    decodes: int
    chunks: tuple[Chunk, ...]
    # blocks that the longest decoding sequence needs, present token included
    decode_blocks: int

    def to(self, device: torch.device) -> "StepBatch":
        """The same on another device."""
        names = ("token_M", "position_M", "sequence_M", "table_SX", "wanted_W")
        moved = {name: getattr(self, name).to(device, non_blocking=True) for name in names}
        return dataclasses.replace(self, **moved)
