"""Train runs, slice by slice."""

import pytest
import torch

from engines.protocol import Done, Dropped, Failed, Start, Yield
from engines.tensor.device import Device
from engines.tensor.outbox import Outbox
from engines.tensor.rates import RateBook
from engines.tensor.school import KEEP_S, School
from noidle.jobs import ModelShape, Train
from tensor_llm.adding import add_model
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore

CPU = torch.device("cpu")
SHAPE = ModelShape(layers=1, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=32)
TEXT = "The cat sat on the mat.\n" * 60


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


class Room:
    """A library with memory for everything."""

    def __init__(self):
        self.asked = []

    def make_room(self, needed, field, value, progress):
        self.asked.append((needed, field))


class Slow(Device):
    """Queues what it is given, until somebody waits for it."""

    waits = 0

    def wait(self):
        Slow.waits += 1


class World:
    def __init__(self, folder):
        self.events, self.pulses = [], []
        self.clock, self.room = Clock(), Room()
        self.outbox = Outbox(self.events.append)
        self.school = School(
            ModelStore(folder),
            folder / "text",
            Slow(first=CPU, second=None, dtype=torch.float32, label=""),
            self.room,
            outbox=self.outbox,
            rates=RateBook(self.clock),
            clock=self.clock,
            pulse=lambda: self.pulses.append(torch._C._current_graph_task_id()),
        )

    def begin(self, run, checkpoint=None, **more):
        settings = {"steps": 4, "batch": 2, "sequence": 16, "warmup_steps": 1, "slice_s": 5}
        job = Train(**{"model": "m", "text": TEXT, "shape": SHAPE, **settings, **more})
        self.school.begin(Start.of(run, job, 1, token8=run, checkpoint=checkpoint), job)

    def learn(self, run):
        """Until its first step is done."""
        while not self.steps(run):
            self.turn()

    def turn(self):
        self.school.advance()
        self.outbox.flush((), 0, None)
        self.school.forget_ended()
        self.outbox.clear()

    def steps(self, run):
        told = [step for event in self.events for step in getattr(event, "runs", ())]
        return [step.step for step in told if step.run == run and step.step is not None]

    def end(self, run):
        ends = (Done, Dropped, Failed, Yield)
        while not (found := [e for e in self.events if isinstance(e, ends) and e.run == run]):
            self.turn()
        return found[0]


@pytest.fixture
def world(tmp_path):
    return World(tmp_path)


def test_a_slice_ends_with_the_step_in_which_its_time_is_over(world):
    world.begin("a")
    while not world.steps("a"):
        world.turn()
    world.clock.now_s += 5
    end = world.end("a")
    assert isinstance(end, Yield)
    assert world.steps("a") == [1]
    assert end.checkpoint.step == 1


def test_a_slice_takes_at_least_one_step_whatever_its_text_took_to_read(world):
    world.begin("a", slice_s=0.1)
    while not world.room.asked:
        world.turn()
    world.clock.now_s += 100
    assert isinstance(world.end("a"), Done | Yield)
    assert world.steps("a")


def test_what_is_kept_for_the_next_slice_is_forgotten_in_time(world):
    world.begin("a", slice_s=0.1)
    while not world.steps("a"):
        world.turn()
    world.clock.now_s += 1
    end = world.end("a")
    assert world.school.keeps
    world.clock.now_s += KEEP_S
    world.turn()
    assert not world.school.keeps
    world.begin("b", checkpoint=end.checkpoint, slice_s=0.1)
    assert isinstance(world.end("b"), Done)
    assert world.steps("b")[0] == end.checkpoint.step + 1


def test_a_step_shows_signs_of_life_after_every_layer_both_ways(world):
    world.begin("a", shape=ModelShape(**{**SHAPE.model_dump(), "layers": 3}), steps=2)
    world.end("a")
    outside = -1
    assert world.pulses.count(outside) >= 2 * 3
    assert len(world.pulses) - world.pulses.count(outside) == 2 * 3


def test_a_part_is_over_when_the_device_has_done_it(world):
    world.begin("a", accumulate=2, steps=1)
    before = Slow.waits
    world.learn("a")
    # the held-out text, and two halves of the batch
    assert Slow.waits - before >= 3


def test_training_asks_for_the_memory_it_takes(world):
    world.begin("a")
    world.end("a")
    (needed, field), *_ = world.room.asked
    assert field == "shape"
    assert needed > 16 * 257 * 16


def test_one_learns_while_the_others_wait_and_are_known_to(world):
    world.begin("a", model="one")
    world.begin("b", model="two")
    world.turn()
    assert [run.id for run in world.school.waiting()][-1] == "b"
    world.end("a")
    assert world.steps("b") == []
    assert isinstance(world.end("b"), Done)


def test_a_run_that_waits_is_dropped_at_once(world):
    world.begin("a", model="one")
    world.begin("b", model="two")
    world.school.drop("b")
    world.turn()
    assert isinstance(world.end("b"), Dropped)
    assert isinstance(world.end("a"), Done)


def test_a_drop_before_the_first_step_leaves_nothing_to_go_on_from(world):
    world.begin("a")
    world.turn()
    world.school.drop("a")
    world.school.drop("a")
    assert isinstance(world.end("a"), Dropped)
    assert not world.school.busy


def test_a_pause_ends_the_slice_with_the_step_it_is_in_and_keeps_its_state(world):
    world.begin("a", steps=40, accumulate=2)
    world.learn("a")
    world.turn()
    world.school.pause("a", free=False)
    end = world.end("a")
    assert isinstance(end, Yield)
    assert world.steps("a") == [1, 2]
    assert end.checkpoint.step == 2
    assert world.school.keeps


def test_a_pause_for_memory_keeps_nothing_but_the_checkpoint(world):
    world.begin("a", steps=5)
    world.learn("a")
    world.school.pause("a", free=True)
    end = world.end("a")
    assert isinstance(end, Yield)
    assert not world.school.keeps
    world.begin("b", steps=5, checkpoint=end.checkpoint)
    assert isinstance(world.end("b"), Done)


def test_a_pause_for_memory_frees_what_another_training_left_there(world):
    world.begin("a", steps=40, slice_s=0.1)
    world.learn("a")
    world.clock.now_s += 1
    world.end("a")
    assert world.school.keeps
    world.school.pause("waits-elsewhere", free=True)
    assert not world.school.keeps


def test_a_pause_before_anything_is_opened_ends_the_slice_at_once(world):
    world.begin("a")
    world.begin("b", model="two")
    world.school.pause("a", free=False)
    world.school.pause("b", free=False)
    assert isinstance(world.end("a"), Dropped)
    assert isinstance(world.end("b"), Dropped)
    assert not world.school.busy


def test_paused_again_and_again_a_training_takes_the_steps_of_an_undisturbed_one(world):
    world.begin("whole", steps=6)
    world.end("whole")
    told = {run.step: run.loss for e in world.events for run in getattr(e, "runs", ()) if run.step}
    world.events.clear()
    checkpoint = None
    for number in range(6):
        run = f"part-{number}"
        world.begin(run, model="again", steps=6, checkpoint=checkpoint)
        world.learn(run)
        world.school.pause(run, free=number % 2 == 0)
        checkpoint = getattr(world.end(run), "checkpoint", None)
    again = {run.step: run.loss for e in world.events for run in getattr(e, "runs", ()) if run.step}
    assert again == told


def test_packed_weights_learn_nothing_and_the_refusal_says_why(world, tmp_path):
    world.begin("a", steps=1)
    world.end("a")
    store = ModelStore(tmp_path)
    add_model(store, store.directory("m"), "small", format=WeightFormat.INT8)
    world.begin("b", model="small")
    error = world.end("b").error
    assert (error.code, error.field) == ("invalid", "model")
    assert "plain weights" in error.allowed
    assert "int8" in error.allowed
