"""Keys and values in blocks, and attention over them.

Letters: P blocks, C tokens of a block, X blocks of a sequence, M tokens of a step, B rows,
T tokens of a chunk, H query heads, K key/value heads, D head size."""

import torch
from torch import Tensor

from tensor_llm.config import ModelConfig
from tensor_llm.serving.step import StepBatch


class PagedCache:
    """Blocks of the layers [start, stop): `keys` and `values` hold a tensor (P, C, K, D) a
    layer."""

    def __init__(
        self,
        config: ModelConfig,
        *,
        blocks: int,
        block_tokens: int = 16,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        start: int = 0,
        stop: int | None = None,
    ) -> None:
        self.config = config
        self.blocks, self.block_tokens = blocks, block_tokens
        self.start, self.stop = start, config.layers if stop is None else stop
        self.device, self.dtype = torch.device(device), dtype
        shape = (blocks, block_tokens, config.kv_heads, config.head_size)
        layers = range(self.start, self.stop)
        # zeros, not empty: a masked key has weight 0, and 0 * NaN would still be NaN
        self.keys = tuple(torch.zeros(shape, device=self.device, dtype=dtype) for _ in layers)
        self.values = tuple(torch.zeros(shape, device=self.device, dtype=dtype) for _ in layers)

    @property
    def bytes(self) -> int:
        return sum(part.numel() * part.element_size() for part in (*self.keys, *self.values))


class PagedAttending:
    """What the tokens of one step see; keeps their keys and values in their blocks."""

    def __init__(self, cache: PagedCache, batch: StepBatch) -> None:
        self.position_BT = batch.position_M[None]

    def attend(self, layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        raise NotImplementedError
