"""One model over two devices: the first layers on the CPU, the others on the accelerator, both
computing at once.

Owns the two stages, their threads, and where the cut lies: by the measured time of a layer on
each. Two steps are under way at a time: while one is in its second stage, the other is in its
first. Knows nothing of jobs.

Letters: B rows, T tokens, E residual width, S sequences, W wanted rows, V vocabulary."""

import dataclasses
import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial

import torch
from torch import Tensor

from engines.tensor.device import Device
from tensor_llm.config import ModelConfig
from tensor_llm.kernels.library import best_kernels
from tensor_llm.model import Decoder
from tensor_llm.serving.kernel_executor import KernelExecutor
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.step import StepBatch
from tensor_llm.serving.torch_executor import TorchExecutor
from tensor_llm.split import LayerSplit

SAMPLES = 3
FLIGHTS = 2
"""Steps under way: one in each stage."""


def choose_split(
    config: ModelConfig,
    device: Device,
    *,
    dtype: torch.dtype,
    rows: int,
    most_on_second: int,
    on_part: Callable[[], None],
) -> LayerSplit:
    """Where both stages take the same time in a decode step of a part of the rows, as measured
    with one layer on each device, computed as it will be. Each gets at least one layer where
    there are two, the second no more than it has memory for."""
    spent_s = []
    for place in (device.first, device.main):
        spent_s.append(_layer_s(config, place, dtype, max(1, rows // FLIGHTS)))
        on_part()
    balanced = round(config.layers * spent_s[1] / sum(spent_s))
    layer = max(1, balanced, config.layers - most_on_second)
    # a single layer, or one that does not fit, leaves the second device the head
    last = config.layers if most_on_second < 1 else max(1, config.layers - 1)
    return LayerSplit(first=device.first, second=device.main, layer=min(layer, last))


@torch.inference_mode()
def _layer_s(config: ModelConfig, place: torch.device, dtype: torch.dtype, rows: int) -> float:
    """Seconds a layer takes for one token of each row; the best of a few."""
    alone = dataclasses.replace(config, layers=1, full_layers=(), vocabulary=16, eos_tokens=())
    with torch.device(place):
        model = Decoder(alone).to(dtype)
        row_S, zero_S = torch.arange(rows), torch.zeros(rows, dtype=torch.int64)
    half = _half(model, PagedCache(alone, blocks=rows, device=place, dtype=dtype))
    batch = StepBatch(
        token_M=zero_S,
        position_M=zero_S,
        sequence_M=row_S,
        table_SX=row_S[:, None],
        wanted_W=row_S,
        decodes=rows,
        chunks=(),
        decode_blocks=1,
    )
    x_BTE = half.embed(batch)
    times = []
    for _ in range(SAMPLES + 1):
        began_s = time.perf_counter()
        half.layers(x_BTE, batch)
        if place.type != "cpu":
            torch.accelerator.synchronize(place)
        times.append(time.perf_counter() - began_s)
    # the first one also pays for what the device sets up
    return min(times[1:])


def _half(model: Decoder, cache: PagedCache) -> TorchExecutor:
    """The layers of `cache` where they lie, in C++ where that can be."""
    if cache.device.type == "cpu" and cache.stop > cache.start and best_kernels() is not None:
        try:
            return KernelExecutor(model, cache)
        except ValueError:
            # sizes or types that the kernels do not take
            pass
    return TorchExecutor(model, cache, asynchronous=False)


class _Step:
    """What travels: the batch, then activations, then logits."""

    def __init__(self, batch: StepBatch) -> None:
        self.batch = batch
        self.value: Tensor | None = None
        self.future: Future[Tensor] = Future()

    def land(self) -> Tensor:
        return self.future.result()


class Stage:
    """One device with its layers, its blocks and its thread; steps pass in order."""

    def __init__(self, name: str, work: Callable[[StepBatch, Tensor | None], Tensor]) -> None:
        self._work = work
        self._queue: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self.next: Stage | None = None
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def enter(self, step: _Step | None) -> None:
        self._queue.put(step)

    def _run(self) -> None:
        with torch.inference_mode():
            while (step := self._queue.get()) is not None:
                self._pass(step)
                del step
        if self.next is not None:
            self.next.enter(None)

    def _pass(self, step: _Step) -> None:
        try:
            step.value = self._work(step.batch, step.value)
        except BaseException as error:  # noqa: BLE001  whoever waits for the step gets it
            step.future.set_exception(error)
            return
        if self.next is not None:
            self.next.enter(step)
        else:
            step.future.set_result(step.value)


class HybridExecutor:
    """A model whose layers lie on two devices. Batches lie on the first, where tokens begin
    their way: to make them on the second would wait for the step that computes there. Logits
    stay on the second, which is the quicker one to choose from them."""

    flights = FLIGHTS
    # landing waits for the second stage
    asynchronous = False

    def __init__(
        self,
        model: Decoder,
        split: LayerSplit,
        *,
        blocks: int,
        block_tokens: int,
        dtype: torch.dtype,
    ) -> None:
        self.config, self._split = model.config, split
        self.device, self.logits_device = split.first, split.second
        self.blocks, self.block_tokens = blocks, block_tokens
        sized = partial(
            PagedCache, model.config, blocks=blocks, block_tokens=block_tokens, dtype=dtype
        )
        self._halves = (
            _half(model, sized(device=split.first, stop=split.layer)),
            _half(model, sized(device=split.second, start=split.layer)),
        )
        self._entry = Stage(f"layers-0-{split.layer}", self._first)
        self._entry.next = Stage(f"layers-{split.layer}-", self._second)

    def run(self, batch: StepBatch) -> _Step:
        step = _Step(batch)
        self._entry.enter(step)
        return step

    def close(self) -> None:
        self._entry.enter(None)

    def _first(self, batch: StepBatch, _: Tensor | None) -> Tensor:
        half = self._halves[0]
        return half.layers(half.embed(batch), batch)

    def _second(self, batch: StepBatch, x_BTE: Tensor | None) -> Tensor:
        assert x_BTE is not None
        half = self._halves[1]
        there = batch.to(self._split.second)
        x_BTE = half.layers(x_BTE.to(self._split.second), there)
        return half.head(x_BTE, there)
