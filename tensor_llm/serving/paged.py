"""Keys and values in blocks, and attention over them.

Letters: P blocks, C tokens of a block, X blocks of a sequence, M tokens of a step, B rows,
T tokens of a chunk, H query heads, K key/value heads, D head size."""

import torch
from torch import Tensor

from tensor_llm.attention import attend_causal, attend_chunk, attend_decode
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
        self._cache, self._batch = cache, batch
        C = cache.block_tokens
        block_M = batch.table_SX[batch.sequence_M, batch.position_M // C]
        # the place of each token in all blocks laid end to end
        self._place_M = block_M * C + batch.position_M % C
        D = batch.decodes
        self._table_BX = batch.table_SX[batch.sequence_M[:D], : batch.decode_blocks]
        self._length_B = batch.position_M[:D] + 1

    def attend(self, layer: int, q_BTHD: Tensor, k_BTKD: Tensor, v_BTKD: Tensor) -> Tensor:
        cache, batch = self._cache, self._batch
        keys_PCKD, values_PCKD = cache.keys[layer - cache.start], cache.values[layer - cache.start]
        self._store(keys_PCKD, k_BTKD)
        self._store(values_PCKD, v_BTKD)
        window = cache.config.window_of(layer)
        parts = []
        if batch.decodes:
            q_B1HD = q_BTHD[0, : batch.decodes, None]
            out_B1HD = attend_decode(
                q_B1HD, keys_PCKD, values_PCKD, self._table_BX, self._length_B, window
            )
            parts.append(out_B1HD.transpose(0, 1))
        for chunk in batch.chunks:
            rows = slice(chunk.first, chunk.first + chunk.count)
            if chunk.start == 0 and (window is None or chunk.count <= window):
                part = attend_causal(q_BTHD[:, rows], k_BTKD[:, rows], v_BTKD[:, rows])
            else:
                table_X = batch.table_SX[chunk.sequence]
                part = attend_chunk(
                    q_BTHD[:, rows], keys_PCKD, values_PCKD, table_X, chunk.start, window
                )
            parts.append(part)
        return parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)

    def _store(self, to_PCKD: Tensor, x_BTKD: Tensor) -> None:
        to_PCKD.flatten(0, 1).index_copy_(0, self._place_M, x_BTKD[0].to(to_PCKD.dtype))
