"""Steps on the CPU in one C++ call, decoding sequences and prompts together.

Owns which steps plain torch does faster. Knows nothing of sequences.

Letters: M tokens of a step, E residual width, W wanted rows, V vocabulary."""

import torch
from torch import Tensor

from tensor_llm.kernels.binding import plan_of
from tensor_llm.kernels.library import Kernels, best_kernels
from tensor_llm.kernels.plan import DecoderPlan, KVBlocks
from tensor_llm.kernels.rows import Rows
from tensor_llm.kernels.step import DecodeStep
from tensor_llm.model import Decoder
from tensor_llm.serving.executor import Landed
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.step import StepBatch
from tensor_llm.serving.torch_executor import TorchExecutor

MOST_ROWS = 32
"""Tokens of a step beyond which torch's products of float32 are faster. Those of narrow weights
are not, whatever the processor has: 3 to 10 times slower where it lacks tiles."""


def serves(model: Decoder, kernels: Kernels | None = None) -> bool:
    """Whether the C++ kernels run here and take this model."""
    here = model.norm.weight.device.type == "cpu"
    return here and (kernels or best_kernels()) is not None and plan_of(model).fuses


class KernelExecutor(TorchExecutor):
    """`cache` is on the CPU and holds the layers that this executor runs. Logits come out as
    with TorchExecutor, but for the rounding of activations: to 8 bits a group where weights are
    packed and rows are few, else to the weights' own type."""

    def __init__(
        self, model: Decoder, cache: PagedCache, *, kernels: Kernels | None = None
    ) -> None:
        """`kernels` where a level other than the best is wanted.

        Raises:
            ValueError: there are no kernels that take this model.
        """
        super().__init__(model, cache, asynchronous=False)
        kernels = kernels or best_kernels()
        plan = plan_of(model, cache.start, cache.stop)
        if kernels is None or not plan.fuses:
            raise ValueError("model: allowed is one that the C++ kernels take")
        self._step = DecodeStep(
            plan, KVBlocks(keys=cache.keys, values=cache.values), kernels=kernels
        )
        self._most_rows = MOST_ROWS if _is_wide(plan) else None

    @torch.inference_mode()
    def run(self, batch: StepBatch) -> Landed:
        if self._is_large(batch):
            return super().run(batch)
        return Landed(self._step(batch.token_M, _rows(batch)))

    def layers(
        self, x_BTE: Tensor, batch: StepBatch, start: int | None = None, stop: int | None = None
    ) -> Tensor:
        parts = (start, stop) in ((None, None), (self.cache.start, self.cache.stop))
        if self._is_large(batch) or not parts:
            return super().layers(x_BTE, batch, start, stop)
        return self._step.layers(x_BTE[0], _rows(batch))[None].to(x_BTE.dtype)

    def _is_large(self, batch: StepBatch) -> bool:
        return self._most_rows is not None and len(batch.token_M) > self._most_rows


def _is_wide(plan: DecoderPlan) -> bool:
    """Whether weights are float32, which no tile takes."""
    weight = plan.layers[0].query.weight
    return isinstance(weight, Tensor) and weight.dtype is torch.float32


def _rows(batch: StepBatch) -> Rows:
    return Rows(
        position_M=batch.position_M,
        sequence_M=batch.sequence_M,
        table_SX=batch.table_SX,
        wanted_W=batch.wanted_W,
    )
