"""Which model is measured, and when."""

import pytest

from engines.tensor.measuring import TRIES, Measuring
from engines.tensor.pace import Pace
from engines.tensor.rates import RateBook
from noidle.jobs import ModelShape
from tensor_llm.config import ModelConfig
from tensor_llm.model import new_decoder
from tensor_llm.serving.core import Core
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor

MODEL = new_decoder(
    ModelConfig.of_shape(
        ModelShape(layers=1, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=128)
    ),
    1,
)


class Model:
    """What of a model in memory matters here."""

    capacity = 128

    def __init__(self, name, pace):
        self.name, self.users = name, 0
        executor = TorchExecutor(MODEL, PagedCache(MODEL.config, blocks=32))
        self.core = Core(executor, rows=4, chunk_tokens=lambda: pace.part_tokens(name))


class World:
    def __init__(self, *names):
        self.now_s, self.settled = 0.0, 0
        self.rates = RateBook(lambda: self.now_s)
        self.pace = Pace(self.rates)
        self.models = [Model(name, self.pace) for name in names]
        self.measuring = Measuring(
            self,
            rates=self.rates,
            pace=self.pace,
            slots=4,
            settle=self.settle,
            clock=self.clock,
        )

    def settle(self):
        self.settled += 1

    def clock(self):
        self.now_s += 0.001
        return self.now_s

    def take_any(self, wanted):
        for model in self.models:
            if wanted(model):
                model.users += 1
                return model
        return None

    def give(self, model):
        model.users -= 1

    def finish(self):
        while self.measuring.advance():
            assert not self.pace.alone


def test_each_model_is_measured_once_and_given_back():
    world = World("a", "b", "a")
    world.finish()
    assert set(world.rates.news().models) == {"a", "b"}
    assert [model.users for model in world.models] == [0, 0, 0]
    assert world.settled == 2
    world.models.append(Model("c", world.pace))
    assert world.measuring.advance()
    assert world.models[-1].users == 1


def test_what_is_found_is_told_at_once():
    world = World("a")
    world.rates.load.add(1, 1.0)
    assert world.rates.news()
    world.rates.load.add(9, 1.0)
    assert world.rates.news() is None
    while world.measuring.advance() and world.models[0].users:
        pass
    assert world.rates.news().of("a").step_s is not None


def test_a_measurement_that_is_broken_off_again_and_again_is_left():
    world = World("a")
    for _ in range(TRIES):
        assert world.measuring.advance()
        assert world.measuring.advance()
        assert world.measuring.borrowed_tokens
        world.measuring.stop()
        assert world.measuring.borrowed_tokens == 0
        assert world.models[0].users == 0
    assert not world.measuring.advance()
    world.measuring.stop()
    assert world.models[0].core.kv_tokens_free == world.models[0].core.kv_tokens_total


@pytest.mark.parametrize("alone", [True, False])
def test_whole_prompts_are_read_only_while_nobody_else_is_there(alone):
    world = World("a")
    world.pace.alone = alone
    assert (world.pace.part_tokens("a") > 512) == alone
