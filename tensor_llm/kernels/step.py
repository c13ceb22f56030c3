"""One decode step of a whole decoder as one call.

Owns the memory a step works in and the check of what the C++ side is handed. Knows nothing of
sampling or scheduling.

Letters: M rows (tokens of this call), S sequences, E residual width, X blocks of a sequence,
W wanted rows, V vocabulary."""

import ctypes
from ctypes import byref
from dataclasses import dataclass

import torch
from torch import Tensor

from tensor_llm.kernels import reference, structures
from tensor_llm.kernels.library import Kernels, best_kernels, structure_of
from tensor_llm.kernels.plan import DecoderPlan, KVBlocks, LayerPlan, Projection
from tensor_llm.shapes import check_shape

_PROJECTIONS = ("query", "key", "value", "output", "gate", "up", "down")


class DecodeStep:
    """Reads one token of each of some sequences, or a few tokens of one, and gives logits.

    `plan` and `blocks` stay where they are while this lives. One call at a time. Of several
    rows of one sequence each sees those before it.
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

    def __call__(
        self,
        x_ME: Tensor,
        position_M: Tensor,
        sequence_M: Tensor,
        table_SX: Tensor,
        wanted_W: Tensor | None = None,
    ) -> Tensor:
        """Logits (W, V) in float32 of the wanted rows, by default all.

        `x` is the embedding of each row's token, `position` its place in its sequence,
        `sequence` that one's line in `table`, which has the blocks of each sequence in order;
        all of them integers. Writes the rows' keys and values.

        Raises:
            ValueError: shapes do not fit, or a position or block lies outside.
        """
        check_shape("x_ME", x_ME, None, self.plan.hidden)
        check_shape("position_M", position_M, len(x_ME))
        check_shape("sequence_M", sequence_M, len(x_ME))
        check_shape("table_SX", table_SX, None, None)
        if wanted_W is None:
            wanted_W = torch.arange(len(x_ME))
        rows = _Rows.of(position_M, sequence_M, table_SX, wanted_W)
        rows.check(self.blocks)
        if self._fused is not None:
            return self._fused(x_ME, rows)
        return reference.step(
            self.plan,
            x_ME,
            rows.position_M,
            rows.sequence_M,
            rows.table_SX,
            self.blocks,
            rows.wanted_W,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rows:
    """Where the rows of one call belong, as the C++ side reads it."""

    position_M: Tensor
    sequence_M: Tensor
    table_SX: Tensor
    wanted_W: Tensor

    @classmethod
    def of(
        cls, position_M: Tensor, sequence_M: Tensor, table_SX: Tensor, wanted_W: Tensor
    ) -> "_Rows":
        return cls(
            position_M=position_M.to(torch.int64).contiguous(),
            sequence_M=sequence_M.to(torch.int64).contiguous(),
            table_SX=table_SX.to(torch.int64).contiguous(),
            wanted_W=wanted_W.to(torch.int64).contiguous(),
        )

    def check(self, blocks: KVBlocks) -> None:
        """A wrong number here would write anywhere in memory."""
        places = self.table_SX.shape[1] * blocks.block_tokens
        _check_range("position_M", self.position_M, places)
        _check_range("sequence_M", self.sequence_M, len(self.table_SX))
        _check_range("table_SX", self.table_SX, len(blocks.keys[0]))
        _check_range("wanted_W", self.wanted_W, len(self.position_M))


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

    def __call__(self, x_ME: Tensor, rows: _Rows) -> Tensor:
        # the step works in x, so never in the caller's
        x_ME = x_ME.detach().to(torch.float32, copy=True).contiguous()
        logits_WV = torch.empty(len(rows.wanted_W), self._vocabulary)
        batch = structures.Batch(
            x_ME.data_ptr(),
            rows.position_M.data_ptr(),
            rows.sequence_M.data_ptr(),
            rows.table_SX.data_ptr(),
            rows.table_SX.shape[1],
            len(x_ME),
            rows.wanted_W.data_ptr(),
            len(rows.wanted_W),
            logits_WV.data_ptr(),
        )
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
        projections = (self._weight(getattr(layer, name)) for name in _PROJECTIONS)
        return structures.Layer(*map(self._floats, norms), *projections, layer.window or 0)

    def _model_of(self, plan: DecoderPlan) -> structures.Model:
        return structures.Model(
            self._layers,
            self._floats(plan.norm_E),
            self._floats(plan.frequency_D),
            self._weight(plan.head),
            len(plan.layers),
            plan.hidden,
            plan.heads,
            plan.kv_heads,
            plan.head_size,
            plan.mlp,
            plan.norm_epsilon,
            plan.rotary_scale,
        )

    def _weight(self, projection: Projection) -> structures.Weight:
        bias_N = projection.bias_N
        if bias_N is not None:
            bias_N = bias_N.detach().float().contiguous()
            self._kept.append(bias_N)
        weight = projection.weight
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


def _check_range(name: str, tensor: Tensor, end: int) -> None:
    if tensor.numel() and (int(tensor.min()) < 0 or int(tensor.max()) >= end):
        found = f"{int(tensor.min())} to {int(tensor.max())}"
        raise ValueError(f"{name} has {found}: allowed is 0 to {end - 1}")
