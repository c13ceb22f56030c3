"""Runs on their way in."""

import threading

import pytest

from engines.protocol import Done, Dropped, Failed, Log, Start, Step
from engines.tensor.desk import Desk
from engines.tensor.library import Resident
from engines.tensor.measuring import Measuring
from engines.tensor.outbox import Outbox
from engines.tensor.pace import Pace
from engines.tensor.rates import RateBook
from noidle.errors import InvalidJob
from noidle.jobs import Generate, Message, ModelShape
from tensor_llm.config import ModelConfig
from tensor_llm.model import new_decoder
from tensor_llm.serving.core import Core
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor
from tensor_llm.tokenizer import Tokenizer

CONFIG = ModelConfig.of_shape(
    ModelShape(layers=1, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=64)
)


class SlowLibrary:
    """One model, whose load ends when the test says so."""

    short = False

    def __init__(self):
        self.may_end = threading.Event()
        self.fault = None
        self.given = []
        self.resident = None

    def revision_for(self, name, former):
        return "r"

    def newest(self, name):
        return "r"

    def take(self, name, revision):
        if self.resident is not None:
            self.resident.users += 1
        return self.resident

    def load(self, name, revision, progress):
        assert self.may_end.wait(10)
        if self.fault:
            raise self.fault
        executor = TorchExecutor(new_decoder(CONFIG, 1), PagedCache(CONFIG, blocks=8))
        self.resident = Resident(
            name=name,
            revision=revision,
            tokenizer=Tokenizer.train(["x"], 257),
            chat=None,
            core=Core(executor, rows=2),
            context=64,
            capacity=64,
            eos_tokens=frozenset(),
            weight_bytes=1,
            cache_bytes=0,
            users=1,
        )
        return self.resident

    def take_any(self, wanted):
        if self.resident is None or not wanted(self.resident):
            return None
        self.resident.users += 1
        return self.resident

    def hold(self, resident):
        resident.users += 1

    def give(self, resident):
        resident.users -= 1
        self.given.append(resident)


class World:
    def __init__(self):
        self.events = []
        self.library = SlowLibrary()
        self.outbox = Outbox(self.events.append)
        rates = RateBook(lambda: 0.0)
        shared = {"rates": rates, "pace": Pace(rates), "settle": lambda: None, "clock": lambda: 0.0}
        measuring = Measuring(self.library, slots=2, **shared)
        self.desk = Desk(self.library, outbox=self.outbox, measuring=measuring, **shared)

    def begin(self, run, **more):
        job = Generate(**{"model": "m", "prompt": "x", "max_tokens": 2, **more})
        self.desk.begin(Start.of(run, job, 1), job)

    def turn(self):
        self.desk.advance()
        for run in self.desk.waiting():
            self.outbox.moved(run)
        self.outbox.flush((), 0, None)
        self.desk.forget_ended()
        self.outbox.clear()

    def until(self, kind):
        while not (found := [event for event in self.events if isinstance(event, kind)]):
            self.turn()
        return found[0]


@pytest.fixture
def world():
    return World()


def test_a_run_moves_while_its_model_loads_and_then_answers(world):
    world.begin("r")
    moved = world.until(Step)
    assert [step.run for step in moved.runs] == ["r"]
    world.library.may_end.set()
    assert world.until(Done).run == "r"
    assert not world.desk.busy
    world.turn()
    assert world.library.resident.users == 0


def test_a_run_dropped_while_its_model_loads_ends_at_once_and_gives_the_model_back(world):
    world.begin("r")
    world.desk.drop("r")
    assert world.until(Dropped).run == "r"
    world.library.may_end.set()
    while world.desk.busy:
        world.turn()
    assert world.library.given == [world.library.resident]
    assert not [event for event in world.events if isinstance(event, Done)]


def test_a_load_that_fails_ends_its_run_alone(world):
    world.library.fault = InvalidJob.of("model", "m", "something smaller")
    world.library.may_end.set()
    world.begin("r")
    assert world.until(Failed).error.field == "model"
    assert not world.desk.busy


def test_a_run_that_does_not_fit_gives_its_model_back(world):
    world.library.may_end.set()
    world.begin("r")
    world.until(Done)
    with pytest.raises(InvalidJob):
        world.begin("long", max_tokens=64)
    world.turn()
    assert world.library.resident.users == 0


def test_a_conversation_needs_a_chat_template_and_the_refusal_says_what_to_do(world):
    world.library.may_end.set()
    world.begin("r", prompt=None, messages=(Message(role="user", content="x"),))
    error = world.until(Failed).error
    assert (error.code, error.field, error.value) == ("invalid", "messages", "'1 messages'")
    assert "chat_template.jinja" in error.allowed
    assert world.library.resident.users == 0


def test_a_preload_that_fails_is_told_in_words(world):
    world.library.fault = InvalidJob.of("model", "m", "something smaller")
    world.library.may_end.set()
    world.desk.preload("m")
    assert "something smaller" in world.until(Log).message
    assert not world.desk.busy


def test_a_model_is_measured_once_nobody_waits_and_arriving_work_ends_that(world):
    world.library.may_end.set()
    world.begin("r")
    assert not world.desk.measure()
    world.until(Done)
    world.turn()
    core, events = world.library.resident.core, len(world.events)
    assert world.desk.measure()
    assert world.desk.measure()
    assert core.busy
    world.begin("s")
    # it has the core to itself
    assert [one.request.max_tokens for one in (*core.running, *core.waiting)] == [2]
    while len([event for event in world.events if isinstance(event, Done)]) < 2:
        world.turn()
        assert not world.desk.measure() or not world.desk.busy
    while world.desk.measure():
        pass
    assert not core.busy
    assert core.kv_tokens_free == core.kv_tokens_total
    assert world.library.resident.users == 0
    told = {run.run for event in world.events[events:] for run in getattr(event, "runs", ())}
    assert told == {"s"}


def test_a_load_that_somebody_waits_for_ends_a_measurement(world):
    world.library.may_end.set()
    world.begin("r")
    world.until(Done)
    world.turn()
    assert world.desk.measure()
    world.library.short = True
    assert not world.desk.measure()
    assert world.library.resident.users == 0
