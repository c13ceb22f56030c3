"""One model over two devices: the first layers on the CPU, the others on the accelerator, both
computing at once.

Owns the two stages, their threads, and where the cut lies: by the measured time of a layer on
each. Two steps are under way at a time: while one is in its second stage, the other is in its
first. Knows nothing of jobs.

Letters: B rows, T tokens, E residual width, W wanted rows, V vocabulary."""

import queue
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future

import torch
from torch import Tensor

from engines.tensor.device import Device
from tensor_llm.attention import WholeSequences
from tensor_llm.config import ModelConfig
from tensor_llm.layers import Angles, Layer
from tensor_llm.model import Decoder
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
    with one layer on each device; each gets at least one layer where there are two, the second
    no more than it has memory for."""
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
def _layer_s(config: ModelConfig, place: torch.device, dtype: torch.dtype, batch: int) -> float:
    """Seconds a layer takes for one token of each row; the best of a few."""
    with torch.device(place):
        layer = Layer(config).to(dtype)
    position_BT = torch.zeros((batch, 1), dtype=torch.int64, device=place)
    angles, attending = Angles(position_BT, config), WholeSequences(position_BT, config)
    x_BTE = torch.zeros((batch, 1, config.hidden), dtype=dtype, device=place)
    times = []
    for _ in range(SAMPLES + 1):
        began_s = time.perf_counter()
        layer(x_BTE, angles, 0, attending)
        if place.type != "cpu":
            torch.accelerator.synchronize(place)
        times.append(time.perf_counter() - began_s)
    # the first one also pays for what the device sets up
    return min(times[1:])


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
        halves = ((split.first, 0, split.layer), (split.second, split.layer, None))
        self._halves = tuple(
            TorchExecutor(
                model,
                PagedCache(
                    model.config,
                    blocks=blocks,
                    block_tokens=block_tokens,
                    device=place,
                    dtype=dtype,
                    start=start,
                    stop=stop,
                ),
                asynchronous=False,
            )
            for place, start, stop in halves
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
