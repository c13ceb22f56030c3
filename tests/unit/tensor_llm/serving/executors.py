"""Executors that make trouble, and plain answers to compare with."""

from collections.abc import Callable
from functools import cache

import torch
from torch import Tensor

from tensor_llm.model import Decoder
from tensor_llm.sampling import Sampling, SamplingBatch, sample
from tensor_llm.serving.core import Core
from tensor_llm.serving.executor import Landed
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.step import StepBatch
from tensor_llm.serving.torch_executor import TorchExecutor
from tests.unit.tensor_llm.builders import make_model

MODELS = ("plain", "window")
GREEDY = Sampling()


@cache
def model_of(name: str) -> Decoder:
    if name == "window":
        return make_model(1, heads=6, kv_heads=2, layers=3, window=9, full_layers=(1,), context=96)
    return make_model(0, context=96)


def make_cache(name: str, blocks: int, block_tokens: int) -> PagedCache:
    return PagedCache(model_of(name).config, blocks=blocks, block_tokens=block_tokens)


@cache
def plain_answer(
    name: str, tokens: tuple[int, ...], count: int, sampling: Sampling = GREEDY
) -> tuple[int, ...]:
    """Every token reads the whole text again."""
    found = list(tokens)
    with torch.inference_mode():
        for _ in range(count):
            logits_BTV = model_of(name)(torch.tensor([found]))
            batch = SamplingBatch.of([sampling])
            found.append(int(sample(logits_BTV[:, -1], batch, [len(found)])))
    return tuple(found[len(tokens) :])


@cache
def plain_logprobs(name: str, tokens: tuple[int, ...]) -> tuple[float, ...]:
    """Of the tokens 1…n-1."""
    with torch.inference_mode():
        share_TV = model_of(name)(torch.tensor([tokens]))[0].log_softmax(-1)
    return tuple(float(share_TV[at, token]) for at, token in enumerate(tokens[1:]))


class LateExecutor(TorchExecutor):
    """Two steps under way; each is computed as late as may be, when it or a later one lands."""

    flights = 2

    def __init__(self, model: Decoder, cache: PagedCache) -> None:
        super().__init__(model, cache, asynchronous=False)
        self._queue: list[LateFlight] = []

    def run(self, batch: StepBatch) -> "LateFlight":
        flight = LateFlight(self, batch)
        self._queue.append(flight)
        assert len(self._queue) <= self.flights
        return flight

    def compute_upto(self, last: "LateFlight") -> None:
        while last in self._queue:
            flight = self._queue.pop(0)
            try:
                flight.logits_WV = self.compute(flight.batch)
            except RuntimeError as error:
                flight.error = error

    def compute(self, batch: StepBatch) -> Tensor:
        return super().run(batch).land()


class LateFlight:
    def __init__(self, executor: LateExecutor, batch: StepBatch) -> None:
        self._executor, self.batch = executor, batch
        self.logits_WV: Tensor | None = None
        self.error: RuntimeError | None = None

    def land(self) -> Tensor:
        self._executor.compute_upto(self)
        if self.error is not None:
            raise self.error
        assert self.logits_WV is not None
        return self.logits_WV


class FailedFlight:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def land(self) -> Tensor:
        raise self._error


def executor_of(kind: str, name: str, blocks: int, block_tokens: int) -> TorchExecutor:
    model, kv = model_of(name), make_cache(name, blocks, block_tokens)
    if kind == "late":
        return LateExecutor(model, kv)
    return TorchExecutor(model, kv, asynchronous=kind == "asynchronous")


KINDS = ("plain", "asynchronous", "late")


def failing(executor: TorchExecutor, fails: Callable[[StepBatch], str | None]) -> TorchExecutor:
    """Steps of which `fails` says "run" or "land" go wrong there; half of what they would have
    written is written."""
    late = isinstance(executor, LateExecutor)
    run = executor.compute if late else executor.run

    def tried(batch: StepBatch) -> Landed | FailedFlight | Tensor:
        where = fails(batch)
        if where is None:
            return run(batch)
        error = RuntimeError("this step fails")
        for keys in executor.cache.keys[:1]:
            at_M = batch.table_SX[batch.sequence_M, batch.position_M // executor.block_tokens]
            keys[at_M, batch.position_M % executor.block_tokens] = 1e3
        if late or where == "run":
            raise error
        return FailedFlight(error)

    setattr(executor, "compute" if late else "run", tried)
    return executor


def finish(core: Core, steps: int = 5000) -> list:
    outputs = []
    while core.busy:
        outputs += core.step()
        core.check()
        steps -= 1
        assert steps, "no end"
    return outputs
