"""One model over two devices: the first layers on the CPU, the others on the accelerator, both
computing at once.

Owns the two stages, their threads, and where the cut lies: by the measured time of a layer on
each. Two decode steps of disjoint rows are under way at a time: while one is in its second
stage, the other is in its first. Knows nothing of jobs.

Letters: B rows, T tokens, E residual width, V vocabulary."""

import queue
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, wait
from functools import partial

import torch
from torch import Tensor

from engines.tensor.device import Device
from tensor_llm.attention import WholeSequences
from tensor_llm.cache import KVCache
from tensor_llm.config import ModelConfig
from tensor_llm.layers import Angles, Layer
from tensor_llm.model import Decoder
from tensor_llm.split import LayerSplit

SAMPLES = 3
PARTS = 2
"""Pieces of a text that are read, at least: they follow each other through the stages."""


def choose_split(
    config: ModelConfig,
    device: Device,
    *,
    rows: int,
    most_on_second: int,
    on_part: Callable[[], None],
) -> LayerSplit:
    """Where both stages take the same time in a decode step of a part of the rows, as measured
    with one layer on each device; each gets at least one layer where there are two, the second
    no more than it has memory for."""
    spent_s = []
    for place in (device.first, device.main):
        spent_s.append(_layer_s(config, place, device.dtype, max(1, rows // PARTS)))
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


class Stage:
    """One device with its layers, its cache and its thread; steps pass in order."""

    def __init__(
        self, cache: KVCache, work: Callable[[Tensor, Sequence[int], bool], Tensor]
    ) -> None:
        self.cache = cache
        self._work = work
        self._queue: queue.SimpleQueue[_Step | None] = queue.SimpleQueue()
        self.next: Stage | None = None
        name = f"stage-{cache.start}-{cache.stop}"
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def enter(self, step: "_Step | None") -> None:
        self._queue.put(step)

    def _run(self) -> None:
        with torch.inference_mode():
            while (step := self._queue.get()) is not None:
                self._pass(step)
                del step
        if self.next is not None:
            self.next.enter(None)

    def _pass(self, step: "_Step") -> None:
        try:
            step.value = self._work(step.value, step.rows, step.every)
        except BaseException as error:  # noqa: BLE001  whoever waits for the step gets it
            step.future.set_exception(error)
            return
        if self.next is not None:
            self.next.enter(step)
        else:
            step.future.set_result(step.value)


class _Step:
    """What travels: token ids, then activations, then logits."""

    def __init__(self, token_BT: Tensor, rows: Sequence[int], *, every: bool) -> None:
        self.value = token_BT
        self.rows = rows
        self.every = every
        self.future: Future[Tensor] = Future()

    def land(self) -> Tensor:
        """Logits after the last token of each row (B, V)."""
        return self.future.result()[:, -1]


class HybridRunner:
    """A model whose layers lie on two devices."""

    flights = PARTS

    def __init__(
        self, model: Decoder, split: LayerSplit, *, rows: int, capacity: int, dtype: torch.dtype
    ) -> None:
        self._model, self._split = model, split
        config = model.config
        sized = partial(KVCache, config, rows=rows, capacity=capacity, dtype=dtype)
        first = sized(device=split.first, stop=split.layer)
        second = sized(device=split.second, start=split.layer)
        self._stages = Stage(first, self._first), Stage(second, self._second)
        self._stages[0].next = self._stages[1]
        self.capacity, self.rows = first.capacity, rows

    def close(self) -> None:
        self._stages[0].enter(None)

    def claim(self) -> int | None:
        if not self._stages[0].cache.free_rows:
            return None
        rows = {stage.cache.claim() for stage in self._stages}
        assert len(rows) == 1
        return rows.pop()

    def release(self, row: int) -> None:
        for stage in self._stages:
            stage.cache.release(row)

    def length(self, row: int) -> int:
        return self._stages[0].cache.length(row)

    def truncate(self, row: int, length: int) -> None:
        for stage in self._stages:
            stage.cache.truncate(row, min(length, stage.cache.length(row)))

    def read(self, tokens: Sequence[int], row: int, *, every: bool) -> Tensor:
        token_T = torch.tensor(tokens)
        size = -(-len(tokens) // PARTS)
        steps = [self._enter(part_T[None], [row], every) for part_T in torch.split(token_T, size)]
        # all of them, also where one fails: none may touch the row once it is given back
        wait([step.future for step in steps])
        logits = [step.future.result()[0] for step in steps]
        return torch.cat(logits) if every else logits[-1]

    def decode(self, tokens: Sequence[int], rows: Sequence[int]) -> _Step:
        return self._enter(torch.tensor(tokens)[:, None], rows, False)

    def _enter(self, token_BT: Tensor, rows: Sequence[int], every: bool) -> _Step:
        step = _Step(token_BT, list(rows), every=every)
        self._stages[0].enter(step)
        return step

    def _first(self, token_BT: Tensor, rows: Sequence[int], _: bool) -> Tensor:
        span = self._stages[0].cache.extend(rows, token_BT.shape[1])
        x_BTE = self._model.embed(token_BT.to(self._split.first))
        return self._model.run_layers(x_BTE, stop=self._split.layer, attending=span)

    def _second(self, x_BTE: Tensor, rows: Sequence[int], every: bool) -> Tensor:
        span = self._stages[1].cache.extend(rows, x_BTE.shape[1])
        x_BTE = x_BTE.to(self._split.second)
        x_BTE = self._model.run_layers(x_BTE, start=self._split.layer, attending=span)
        return self._model.head(x_BTE if every else x_BTE[:, -1:])
