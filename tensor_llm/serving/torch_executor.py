"""Steps in plain torch on one device; its pieces serve a model that is cut over several.

Letters: M tokens of a step, E residual width, W wanted rows, V vocabulary."""

import torch
from torch import Tensor

from tensor_llm.model import Decoder
from tensor_llm.serving.executor import Landed
from tensor_llm.serving.paged import PagedAttending, PagedCache
from tensor_llm.serving.step import StepBatch


class TorchExecutor:
    """`cache` holds the layers that this executor runs; a batch's tensors lie on its device."""

    flights = 1

    def __init__(
        self, model: Decoder, cache: PagedCache, *, asynchronous: bool | None = None
    ) -> None:
        """`asynchronous` is by default what the device is."""
        self.model, self.cache, self.config = model, cache, model.config
        self.device = self.logits_device = cache.device
        self.blocks, self.block_tokens = cache.blocks, cache.block_tokens
        on_cuda = self.device.type == "cuda"
        self.asynchronous = on_cuda if asynchronous is None else asynchronous

    @torch.inference_mode()
    def run(self, batch: StepBatch) -> Landed:
        x_BTE = self.layers(self.embed(batch), batch)
        return Landed(self.head(x_BTE, batch))

    def close(self) -> None:
        pass

    def embed(self, batch: StepBatch) -> Tensor:
        """(1, M, E)."""
        return self.model.embed(batch.token_M[None])

    def layers(
        self, x_BTE: Tensor, batch: StepBatch, start: int | None = None, stop: int | None = None
    ) -> Tensor:
        """The layers [start, stop), by default all that the cache is for; (1, M, E)."""
        return self.model.run_layers(
            x_BTE,
            start=self.cache.start if start is None else start,
            stop=self.cache.stop if stop is None else stop,
            attending=PagedAttending(self.cache, batch),
        )

    def head(self, x_BTE: Tensor, batch: StepBatch) -> Tensor:
        """Logits (W, V) of the wanted rows."""
        return self.model.head(x_BTE[:, batch.wanted_W])[0]
