"""One slice of a train run: from the checkpoint before it to the checkpoint behind it.

Owns the course of a slice, in parts small enough to do other work between. Knows nothing of
optimisers or of the runs beside it."""

from collections.abc import Callable, Generator
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

from engines.protocol import (
    AnyEvent,
    CheckpointRef,
    Done,
    Dropped,
    ModelSeen,
    RunResult,
    RunStep,
    Start,
    Yield,
)
from engines.tensor.outbox import Outbox
from engines.tensor.porter import Porter, Progress
from engines.tensor.rates import RateBook
from engines.tensor.sharing import RANKS
from noidle.jobs import Train
from noidle.snapshot import ModelInfo
from tensor_llm.train_run import TrainRun

Result = TypeVar("Result")
Course = Generator[bool, None, Result]
"""Work in parts; each yields whether it computed, or only waited for the porter."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Classroom:
    """What every lesson uses."""

    porter: Porter
    outbox: Outbox
    rates: RateBook
    # opens the job's model and text where the run left off; slow
    open: Callable[[Start, Train, Progress], TrainRun]
    # keeps an opened run for its next slice
    keep: Callable[[Train, str, TrainRun], None]
    # until the device has done what it was given: else parts would only queue up before it
    wait: Callable[[], None]
    clock: Callable[[], float]


class Lesson:
    """Advance it part by part until it ended."""

    def __init__(self, start: Start, job: Train, room: Classroom) -> None:
        self.id, self.rank = start.run, RANKS[job.job_class]
        self._start, self._job, self._room = start, job, room
        # when its first step began: reading a long text must not use a slice up
        self._began_s: float | None = None
        # computed, and waited for the porter
        self._service_s = 0.0
        self._run: TrainRun | None = None
        self._first_step = 0
        self._dropped = self._paused = False
        # nothing of it is to stay in memory
        self.freed = False
        self._said = RunStep(run=start.run)
        self._course: Course[AnyEvent] = self._slice()

    def advance(self) -> bool:
        """The next part; false if there was only something to wait for."""
        began_s = self._room.clock()
        try:
            computed = next(self._course)
        except StopIteration as end:
            self._room.outbox.end(self, end.value)
            return True
        if computed:
            self._service_s += self._room.clock() - began_s
            self._room.outbox.moved(self)
        return computed

    def tell(self) -> RunStep:
        said, self._said = self._said, RunStep(run=self.id)
        return said

    def drop(self) -> None:
        """Ends it after its last whole step, with a checkpoint where it got anywhere."""
        if not self._dropped:
            self._dropped = True
            self._course.close()
            self._course = self._give_up()

    def pause(self, *, free: bool) -> None:
        """Ends its slice with the step it is in; what has not been opened yet ends at once."""
        self._paused, self.freed = True, free
        if self._run is None:
            self.drop()

    def _slice(self) -> Course[AnyEvent]:
        run = yield from self._carried(
            lambda progress: self._room.open(self._start, self._job, progress)
        )
        self._run, self._first_step = run, run.trainer.steps_done
        trainer = run.trainer
        if trainer.model_step == 0:
            # others can ask the model from now on
            info = yield from self._saved(run)
            self._room.outbox.say(ModelSeen(model=info))
        self._began_s = self._room.clock()
        while not trainer.done:
            yield from self._step(run)
            if not trainer.done and self._over():
                return (yield from self._end_slice(run))
        return (yield from self._graduate(run))

    def _step(self, run: TrainRun) -> Course[None]:
        trainer = run.trainer
        spent_s = 0.0
        parts = trainer.step_parts()
        while True:
            began_s = self._room.clock()
            try:
                next(parts)
                self._room.wait()
            except StopIteration as end:
                loss = end.value
                break
            finally:
                spent_s += self._room.clock() - began_s
            yield True
        self._room.rates.train.add(trainer.tokens_per_step, spent_s)
        self._said = RunStep(
            run=self.id,
            step=trainer.steps_done,
            goal=trainer.plan.steps,
            loss=loss,
            tokens_per_s=trainer.tokens_per_step / spent_s if spent_s > 0 else None,
        )
        yield True

    def _over(self) -> bool:
        assert self._began_s is not None
        return self._paused or self._room.clock() - self._began_s >= self._job.slice_s

    def _end_slice(self, run: TrainRun) -> Course[AnyEvent]:
        info = yield from self._saved(run)
        revision, storage = info.revision or "", info.storage or ""
        if not self.freed:
            self._room.keep(self._job, revision, run)
        return Yield(
            run=self.id,
            checkpoint=CheckpointRef(name=revision, storage=storage, step=run.trainer.steps_done),
            model=info,
            service_s=self._service_s,
        )

    def _graduate(self, run: TrainRun) -> Course[AnyEvent]:
        parts = run.trainer.report_parts()
        while True:
            try:
                next(parts)
                self._room.wait()
            except StopIteration as end:
                report = end.value
                break
            yield True
        info = yield from self._saved(run)
        self._room.outbox.say(ModelSeen(model=info))
        return Done(
            run=self.id, result=RunResult(train=report, model=info.name, revision=info.revision)
        )

    def _give_up(self) -> Course[AnyEvent]:
        run = self._run
        if run is not None and run.trainer.steps_done > self._first_step:
            return (yield from self._end_slice(run))
        return Dropped(run=self.id)

    def _saved(self, run: TrainRun) -> Course[ModelInfo]:
        return (yield from self._carried(lambda _: run.save(self._start.token8)))

    def _carried(self, work: Callable[[Progress], Result]) -> Course[Result]:
        began_s = self._room.clock()
        future: Future[Result] = self._room.porter.submit(work)
        while not future.done():
            yield False
        self._service_s += self._room.clock() - began_s
        return future.result()
