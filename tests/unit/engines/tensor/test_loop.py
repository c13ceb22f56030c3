"""The order of work in the engine's loop, with models that compute and a clock that does not run
by itself."""

import time

import pytest
import torch

from engines.environment import EngineEnvironment
from engines.protocol import Done, ModelSeen, Start, Step, Stop
from engines.tensor.loop import Loop
from noidle.jobs import Generate, ModelShape, Train

CONTEXT = 512
SHAPE = ModelShape(layers=1, hidden=16, heads=2, kv_heads=1, vocabulary=257, context=CONTEXT)
TEXT = "The cat sat on the mat.\n" * 60
PART_S, STEP_S = 0.008, 0.005
"""Of a training step, and of the core."""


class World:
    """A loop whose pool is the test: it is asked for ops at the beginning of each pass."""

    def __init__(self, folder, engine):
        self.now_s, self.events, self.log = 0.0, [], []
        environment = EngineEnvironment(
            engine=engine,
            # both halves on the CPU, so that two steps are under way at once
            stand_in=engine == "hybrid",
            data_dir=folder,
            text_dir=folder,
            storage="here",
            slots=4,
            memory_bytes=1 << 28,
        )
        self.script = iter(())
        self.loop = Loop(environment, self, clock=lambda: self.now_s)
        self._time("_school", "part", PART_S)
        self._time("_desk", "step", STEP_S)

    def _time(self, name, word, takes_s):
        """What `advance` computed is logged, and takes its time."""
        part = getattr(self.loop, name)
        advance = part.advance

        def timed():
            done = advance()
            if done is not None and done is not False:
                self.log.append(word)
                self.now_s += takes_s
            return done

        part.advance = timed

    def emit(self, event):
        self.events.append(event)
        for step in event.runs if isinstance(event, Step) else ():
            if step.tokens:
                self.log.append(f"token of {step.run}")
        if isinstance(event, Done):
            self.log.append(f"end of {event.run}")

    def take(self, wait_s):
        if wait_s:
            # what it waits for happens in a thread of its own
            time.sleep(0.001)
            self.now_s += wait_s
        return next(self.script, [Stop()])

    def run(self, script):
        self.script = script
        self.loop.run()


def train(run, **more):
    settings = {"steps": 1_000_000, "batch": 2, "sequence": 16, "slice_s": 3600, **more}
    return Start.of(run, Train(model="m", text=TEXT, shape=SHAPE, **settings), 1)


def ask(run, prompt, **more):
    job = Generate(
        **{"model": "m", "prompt": prompt, "max_tokens": 8, "class": "interactive"} | more
    )
    return Start.of(run, job, 1)


ACCELERATOR = (
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.accelerator.is_available(), reason="needs an accelerator"),
)


@pytest.fixture(params=["cpu", "hybrid", pytest.param("gpu", marks=ACCELERATOR)])
def world(tmp_path, request):
    return World(tmp_path, request.param)


def beside_training(world, start):
    """Begins it once the model it asks is there and in memory, and training is in full swing."""

    def until(met):
        while not met():
            yield []

    def script():
        yield [train("t")]
        yield from until(lambda: any(isinstance(one, ModelSeen) for one in world.events))
        yield [ask("first", "x", max_tokens=1)]
        yield from until(lambda: "end of first" in world.log)
        yield from until(lambda: world.log[-4:] == ["part"] * 4)
        world.log.clear()
        yield [start]
        yield from until(lambda: f"end of {start.run}" in world.log)

    world.run(script())
    begun = world.log.index("step")
    first = world.log.index(f"token of {start.run}")
    return world.log[begun:first], world.log[first:]


def test_a_prompt_that_arrives_is_read_before_another_part_of_training(world):
    prompt = "The cat sat on the mat. " * 12
    reading, _ = beside_training(world, ask("a", prompt))
    assert reading.count("step") > 2
    assert "part" not in reading


def test_training_gets_half_of_the_time_beside_decoding(world):
    _, decoding = beside_training(world, ask("a", "x", max_tokens=200))
    parts, steps = decoding.count("part"), decoding.count("step")
    # a part begins with a pass, so others may get up to a step more
    assert 0.6 * steps * STEP_S <= parts * PART_S <= steps * STEP_S


def test_beside_a_prompt_no_more_urgent_than_itself_training_goes_on(world):
    prompt = "The cat sat on the mat. " * 12
    reading, _ = beside_training(world, ask("a", prompt, **{"class": "background"}))
    assert "part" in reading
