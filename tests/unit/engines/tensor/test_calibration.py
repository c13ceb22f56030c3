"""Measuring a model that computes, on a clock that runs by its steps alone."""

import pytest

from engines.tensor.calibration import BUDGET_S, Calibration
from engines.tensor.rates import ModelBook
from noidle.jobs import ModelShape
from tensor_llm.config import ModelConfig
from tensor_llm.model import new_decoder
from tensor_llm.serving.core import Core
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor
from tensor_llm.upload import Download

MODEL = new_decoder(
    ModelConfig.of_shape(
        ModelShape(layers=1, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=1024)
    ),
    1,
)
STEP_S, SEQUENCE_S, TOKEN_S = 0.02, 0.002, 0.001


class Timed(TorchExecutor):
    """Takes the time that it is said to."""

    def __init__(self, slower, blocks, asynchronous):
        cache = PagedCache(MODEL.config, blocks=blocks)
        super().__init__(MODEL, cache, asynchronous=asynchronous)
        self.now_s, self.slower, self.steps, self.broken = 0.0, slower, 0, False
        # when the device has done what it was given
        self.done_s = 0.0

    def run(self, batch):
        if self.broken:
            raise RuntimeError("out of memory")
        self.steps += 1
        read = len(batch.token_M) - batch.decodes
        part_s = max(STEP_S if batch.decodes else 0.0, read * TOKEN_S)
        # the first step pays for what the device sets up
        cold = 10 if self.steps == 1 else 1
        step_s = (part_s + batch.decodes * SEQUENCE_S) * self.slower * cold
        self.done_s = max(self.done_s, self.now_s) + step_s
        return super().run(batch)

    def download(self, *tensors):
        return Landing(self, *tensors)


class Landing(Download):
    """Waits until the device has come so far."""

    def __init__(self, executor, *tensors):
        super().__init__(*tensors)
        self._executor, self._done_s = executor, executor.done_s

    def read(self):
        self._executor.now_s = max(self._executor.now_s, self._done_s)
        return super().read()


class World:
    def __init__(self, slower=1.0, rows=4, blocks=64, capacity=1024, asynchronous=False):
        self.executor = Timed(slower, blocks, asynchronous)
        clock = lambda: self.executor.now_s  # noqa: E731
        self.core = Core(
            self.executor,
            rows=rows,
            chunk_tokens=2048,
            clock=clock,
            download=self.executor.download,
        )
        self.book = ModelBook()
        self.calibration = Calibration(
            self.core, self.book, rows=rows, capacity=capacity, clock=clock
        )

    def measure(self):
        while self.calibration.advance():
            pass
        self.calibration.close()
        self.core.check()
        assert self.core.kv_tokens_free == self.core.kv_tokens_total
        return self.book.measured()


@pytest.mark.parametrize("asynchronous", [False, True])
def test_reading_and_decoding_are_measured_alone_and_in_a_batch(asynchronous):
    world = World(asynchronous=asynchronous)
    rates = world.measure()
    assert rates.prefill_tokens_per_s == pytest.approx(1 / TOKEN_S, rel=0.01)
    assert rates.step_s == pytest.approx(STEP_S, rel=0.01)
    assert rates.step_s_per_sequence == pytest.approx(SEQUENCE_S, rel=0.01)
    assert world.executor.now_s < BUDGET_S
    assert 0.1 < rates.prefill_error < 0.5
    assert 0.1 < rates.step_error < 0.5


def test_what_work_shows_soon_weighs_more():
    world = World()
    world.measure()
    for _ in range(5):
        world.book.step(0, 100, 0.2)
    assert world.book.measured().prefill_tokens_per_s < 650


@pytest.mark.parametrize("slower", [5, 20, 100])
def test_a_big_model_is_measured_for_two_seconds_and_what_fits_in_them(slower):
    world = World(slower)
    calibration = world.calibration
    assert calibration.advance()
    first_s = world.executor.now_s
    rates = world.measure()
    assert world.executor.now_s - first_s <= BUDGET_S
    assert (rates.prefill_tokens_per_s is None) == (slower == 100)
    if slower < 100:
        assert sum((rates.step_s, rates.step_s_per_sequence)) == pytest.approx(
            (STEP_S + SEQUENCE_S) * slower, rel=0.01
        )


@pytest.mark.parametrize(
    ("rows", "blocks", "capacity"), [(1, 64, 1024), (4, 2, 32), (8, 5, 80), (4, 1, 16)]
)
def test_a_cache_or_context_that_is_small_is_no_trouble(rows, blocks, capacity):
    rates = World(rows=rows, blocks=blocks, capacity=capacity).measure()
    assert (rates.step_s is None) == (capacity < 32)


def test_it_can_be_broken_off_after_any_step():
    steps = 0
    world = World()
    while world.calibration.advance():
        steps += 1
    assert steps > 15
    for count in range(0, steps, 4):
        world = World()
        for _ in range(count):
            world.calibration.advance()
        before = world.executor.steps
        assert world.calibration.borrowed_tokens > 0 or not world.core.busy
        world.calibration.close()
        assert world.executor.steps == before
        assert world.calibration.borrowed_tokens == 0


def test_a_device_that_takes_no_step_ends_it_without_a_word():
    world = World()
    world.calibration.advance()
    world.executor.broken = True
    assert world.measure().step_s is None
