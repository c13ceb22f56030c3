"""A step of a whole decoder as one call.

Owns the memory a step works in and the check of what the C++ side is handed. Knows nothing of
sampling or scheduling.

Letters: M rows (tokens of this call), E residual width, W wanted rows, V vocabulary."""

import ctypes
from ctypes import byref

import torch
from torch import Tensor

from tensor_llm.kernels import reference, structures
from tensor_llm.kernels.library import AnyWeight, Kernels, best_kernels, structure_of
from tensor_llm.kernels.plan import DecoderPlan, KVBlocks, LayerPlan, Projection
from tensor_llm.kernels.rows import Rows
from tensor_llm.shapes import check_shape

_PROJECTIONS = ("query", "key", "value", "output", "gate", "up", "down")
# what noidle_fault answers with
_FIELDS = (None, "token_M", "position_M", "sequence_M", "table_SX", "wanted_W")


class DecodeStep:
    """Reads a token of each of some sequences, or several that follow each other: of those each
    sees the ones before it.

    `plan` and `blocks` stay where they are while this lives. One call at a time.
    """

    def __init__(
        self, plan: DecoderPlan, blocks: KVBlocks, *, kernels: Kernels | None = None
    ) -> None:
        """`kernels` where a level other than the best is wanted."""
        kernels = kernels or best_kernels()
        self.plan, self.blocks = plan, blocks
        self._fused = _Fused(plan, blocks, kernels) if kernels and plan.fuses else None

    @property
    def fused(self) -> bool:
        """Whether C++ does it."""
        return self._fused is not None

    def __call__(self, token_M: Tensor, rows: Rows) -> Tensor:
        """Logits (W, V) in float32 of the wanted rows; writes the rows' keys and values.

        Raises:
            ValueError: shapes do not fit, or a token, position or block lies outside.
        """
        check_shape("token_M", token_M, len(rows.position_M))
        token_M = token_M.to(torch.int64).contiguous()
        if self._fused is not None:
            x_ME = torch.empty(len(token_M), self.plan.hidden)
            return self._fused.run(x_ME, rows, token_M)
        self._check(rows, token_M)
        x_ME = reference.step(self.plan, rows, self.blocks, reference.embed(self.plan, token_M))
        return reference.head(self.plan, x_ME[rows.wanted_W])

    def layers(self, x_ME: Tensor, rows: Rows) -> Tensor:
        """What the layers make of `x`, in float32; no logits.

        Raises:
            ValueError: as above.
        """
        check_shape("x_ME", x_ME, len(rows.position_M), self.plan.hidden)
        if self._fused is None:
            self._check(rows)
            return reference.step(self.plan, rows, self.blocks, x_ME)
        # the step works in x, so never in the caller's
        x_ME = x_ME.detach().to(torch.float32, copy=True).contiguous()
        self._fused.run(x_ME, rows)
        return x_ME

    def _check(self, rows: Rows, token_M: Tensor | None = None) -> None:
        rows.check(len(self.blocks.keys[0]), self.blocks.block_tokens)
        if token_M is not None and len(token_M):
            low, high = int(token_M.min()), int(token_M.max())
            if low < 0 or high >= self.plan.vocabulary:
                allowed = f"0 to {self.plan.vocabulary - 1}"
                raise ValueError(f"token_M has {low} to {high}: allowed is {allowed}")


class _Fused:
    """The C++ step over one plan and its blocks."""

    def __init__(self, plan: DecoderPlan, blocks: KVBlocks, kernels: Kernels) -> None:
        self._kernels = kernels
        self._vocabulary = plan.vocabulary
        # tensors that only this object holds
        self._kept: list[Tensor] = []
        self._layers = (structures.Layer * len(plan.layers))(*map(self._layer, plan.layers))
        self._model = self._model_of(plan)
        self._cache = _cache_of(blocks)
        # the cache's memory is the caller's; its addresses are only good while it lives
        self._blocks = blocks
        self._scratch = torch.empty(0, dtype=torch.uint8)
        self._room: tuple[int, int] = (0, 0)

    def run(self, x_ME: Tensor, rows: Rows, token_M: Tensor | None = None) -> Tensor:
        """Works in `x`; with tokens from their embeddings on and to the logits (W, V)."""
        wanted = 0 if token_M is None else len(rows.wanted_W)
        logits_WV = torch.empty(wanted, self._vocabulary)
        batch = structures.Batch(
            0 if token_M is None else token_M.data_ptr(),
            x_ME.data_ptr(),
            rows.position_M.data_ptr(),
            rows.sequence_M.data_ptr(),
            rows.table_SX.data_ptr(),
            *rows.table_SX.shape,
            len(x_ME),
            rows.wanted_W.data_ptr(),
            wanted,
            logits_WV.data_ptr(),
        )
        self._check(batch)
        threads = torch.get_num_threads()
        self._kernels.library.noidle_step(
            self._kernels.level,
            byref(self._model),
            byref(self._cache),
            byref(batch),
            self._scratch_for(len(x_ME), threads),
            threads,
        )
        return logits_WV

    def _check(self, batch: structures.Batch) -> None:
        """A wrong number would read or write anywhere in memory."""
        blocks = self._blocks
        fault = self._kernels.library.noidle_fault(
            byref(batch), self._vocabulary, len(blocks.keys[0]), blocks.block_tokens
        )
        if fault:
            raise ValueError(f"{_FIELDS[fault]} points outside of what there is")

    def _scratch_for(self, rows: int, threads: int) -> int:
        """The address of enough memory, on a cache line."""
        if rows > self._room[0] or threads > self._room[1]:
            self._room = max(rows, self._room[0]), max(threads, self._room[1])
            size = self._kernels.library.noidle_scratch_bytes(
                self._kernels.level, byref(self._model), *self._room
            )
            self._scratch = torch.empty(size + 64, dtype=torch.uint8)
        return -(-self._scratch.data_ptr() // 64) * 64

    def _layer(self, layer: LayerPlan) -> structures.Layer:
        norms = (layer.attention_norm_E, layer.mlp_norm_E, layer.query_norm_D, layer.key_norm_D)
        projections = (self._projection(getattr(layer, name)) for name in _PROJECTIONS)
        return structures.Layer(*map(self._floats, norms), *projections, layer.window or 0)

    def _model_of(self, plan: DecoderPlan) -> structures.Model:
        return structures.Model(
            self._layers,
            self._floats(plan.norm_E),
            self._floats(plan.frequency_D),
            self._weight(plan.embedding),
            structures.Weight() if plan.head is None else self._projection(plan.head),
            len(plan.layers),
            plan.hidden,
            plan.heads,
            plan.kv_heads,
            plan.head_size,
            plan.mlp,
            plan.norm_epsilon,
            plan.rotary_scale,
        )

    def _projection(self, projection: Projection) -> structures.Weight:
        bias_N = projection.bias_N
        if bias_N is not None:
            bias_N = bias_N.detach().float().contiguous()
            self._kept.append(bias_N)
        return self._weight(projection.weight, bias_N)

    def _weight(self, weight: AnyWeight | None, bias_N: Tensor | None = None) -> structures.Weight:
        if weight is None:
            return structures.Weight()
        # the plan may be dropped by its owner; what it points at must not
        self._kept.extend([weight] if isinstance(weight, Tensor) else [weight.codes, weight.scales])
        return structure_of(weight, bias_N)

    def _floats(self, tensor: Tensor | None) -> int:
        if tensor is None:
            return 0
        self._kept.append(tensor.detach().float().contiguous())
        return self._kept[-1].data_ptr()


def _cache_of(blocks: KVBlocks) -> structures.Cache:
    addresses = ctypes.c_void_p * len(blocks.keys)
    first = blocks.keys[0]
    return structures.Cache(
        addresses(*(tensor.data_ptr() for tensor in blocks.keys)),
        addresses(*(tensor.data_ptr() for tensor in blocks.values)),
        first.stride(0),
        first.stride(1),
        blocks.block_tokens,
        0 if first.dtype is torch.float32 else 1,
    )
