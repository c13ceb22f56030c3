"""A pool reduced to its engine: starts one, keeps what it says by run, waits for conditions."""

import itertools
import threading
import time
from dataclasses import dataclass, field

from engines.process import EngineProcess
from engines.protocol import (
    AnyEvent,
    Done,
    Drop,
    Dropped,
    Failed,
    Hello,
    ModelSeen,
    Pause,
    RatesMeasured,
    RunStep,
    Start,
    Step,
    Yield,
)

PATIENCE_S = 60.0


@dataclass
class Seen:
    """What one run did so far."""

    steps: list[RunStep] = field(default_factory=list)
    end: AnyEvent | None = None

    @property
    def text(self):
        return "".join(step.text for step in self.steps)

    @property
    def tokens(self):
        return tuple(token for step in self.steps for token in step.tokens)

    @property
    def losses(self):
        return {step.step: step.loss for step in self.steps if step.step is not None}


class Driver:
    """One engine; thread-safe enough for a test's thread and the engine's."""

    def __init__(self, program, engine, environment):
        self._changed = threading.Condition()
        self._numbers = itertools.count(1)
        self.runs: dict[str, Seen] = {}
        self.hellos: list[Hello] = []
        self.models: list = []
        self.rates = RatesMeasured()
        # of the cache, all and free
        self.kv_tokens = None, None
        self.batches: list[int] = []
        self.loaded: tuple[str, ...] = ()
        self.exits: list = []
        self.process = EngineProcess(
            program, engine, environment, on_message=self._hear, on_exit=self._bury
        )

    def __enter__(self):
        self.process.start()
        self.until(lambda: self.hellos)
        return self

    def __exit__(self, *_):
        self.process.stop(grace_s=10)

    def until(self, condition, patience_s=PATIENCE_S):
        """Waits until the condition holds, and returns what it returned."""
        deadline = time.monotonic() + patience_s
        with self._changed:
            while not (found := condition()):
                left = deadline - time.monotonic()
                assert left > 0, f"waited in vain; runs: {self.runs}, exits: {self.exits}"
                self._changed.wait(left)
            return found

    def start(self, job, seed=1, run=None, **more):
        run = run or f"run-{next(self._numbers)}"
        self.runs[run] = Seen()
        op = (
            Start(run=run, job=job, seed=seed, **more)
            if isinstance(job, dict)
            else Start.of(run, job, seed, **more)
        )
        self.process.send(op)
        return run

    def drop(self, run):
        self.process.send(Drop(run=run))

    def pause(self, run, *, free=False):
        self.process.send(Pause(run=run, free=free))

    def finish(self, run):
        """The run's end; everything it did is known then."""
        self.until(lambda: self.runs[run].end)
        return self.runs[run]

    def do(self, job, seed=1, **more):
        return self.finish(self.start(job, seed, **more))

    def _hear(self, event):
        with self._changed:
            match event:
                case Hello():
                    self.hellos.append(event)
                case Step():
                    self.batches.append(event.batch or 0)
                    self.loaded = event.loaded
                    self.kv_tokens = event.kv_tokens_total, event.kv_tokens_free
                    for step in event.runs:
                        self._add(step)
                case RatesMeasured():
                    self.rates = event
                case ModelSeen():
                    self.models.append(event.model)
                case Done() | Failed() | Yield() | Dropped():
                    seen = self.runs[event.run]
                    assert seen.end is None, f"{event.run} ended twice: {seen.end}, {event}"
                    seen.end = event
            self._changed.notify_all()

    def _add(self, step):
        seen = self.runs[step.run]
        assert seen.end is None, f"{step.run} went on after its end: {step}"
        seen.steps.append(step)

    def _bury(self, end):
        with self._changed:
            self.exits.append(end)
            for seen in self.runs.values():
                seen.end = seen.end or end
            self._changed.notify_all()
