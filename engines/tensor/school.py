"""Train runs, one slice at a time; the others wait their turn.

Owns who learns now, and what one slice leaves in memory for the next. Knows nothing of the
course of a slice."""

import dataclasses
from collections import deque
from collections.abc import Callable
from pathlib import Path

from torch import Tensor, nn

from engines.protocol import Dropped, Start
from engines.tensor.device import Device
from engines.tensor.lesson import Classroom, Lesson
from engines.tensor.library import Library
from engines.tensor.outbox import Outbox, Run
from engines.tensor.porter import Porter, Progress
from engines.tensor.rates import RateBook
from engines.tensor.texts import read_texts
from noidle.errors import CheckpointError, InvalidJob
from noidle.jobs import Train
from tensor_llm.config import ModelConfig
from tensor_llm.store import ModelStore, read_config, read_json
from tensor_llm.train_plan import TrainPlan
from tensor_llm.train_run import TrainRun
from tensor_llm.train_state import STATE_FILE

OPENING_PATIENCE_S = 900.0
"""Reading and tokenising a large text gives no signs of life."""
KEEP_S = 60.0
"""How long a run is kept for its next slice, which may well go to another pool."""
BYTES_PER_PARAMETER = 16
"""In float32: the weight, its gradient and AdamW's two moments."""


@dataclasses.dataclass(frozen=True, slots=True, kw_only=True)
class Kept:
    """A run between two of its slices."""

    job: Train
    revision: str
    run: TrainRun
    until_s: float


class School:
    """Two runs at once would share the device and need twice the memory, and end no sooner."""

    def __init__(
        self,
        store: ModelStore,
        text_dir: Path,
        device: Device,
        library: Library,
        *,
        outbox: Outbox,
        rates: RateBook,
        clock: Callable[[], float],
        pulse: Callable[[], None],
    ) -> None:
        """`pulse` is called often during work that takes long without a break."""
        self._store, self._text_dir = store, text_dir
        self._device, self._library = device, library
        self._outbox, self._clock, self._pulse = outbox, clock, pulse
        self._porter = Porter("lessons", clock, patience_s=OPENING_PATIENCE_S)
        self._room = Classroom(
            porter=self._porter,
            outbox=outbox,
            rates=rates,
            open=self._open,
            keep=self._keep,
            wait=device.wait,
            clock=clock,
        )
        self._lessons: deque[Lesson] = deque()
        self._kept: Kept | None = None

    @property
    def busy(self) -> bool:
        return bool(self._lessons)

    @property
    def keeps(self) -> bool:
        """Something is to be forgotten when its time is over: keep advancing."""
        return self._kept is not None

    @property
    def rank(self) -> int | None:
        """How urgent the present slice is; None while nobody learns."""
        return self._lessons[0].rank if self._lessons else None

    def begin(self, start: Start, job: Train) -> None:
        """
        Raises:
            InvalidJob: its checkpoint is not on this storage.
        """
        wanted = start.checkpoint
        if wanted is not None and wanted.name not in self._store.revisions(job.model):
            known = ", ".join(self._store.revisions(job.model)) or "none"
            allowed = f"a revision of {job.model} on this storage: {known}"
            raise InvalidJob.of("checkpoint", wanted.name, allowed)
        self._lessons.append(Lesson(start, job, self._room))

    def advance(self) -> bool:
        """A part of the present slice; false if nothing was computed."""
        kept = self._kept
        if kept is not None and self._clock() >= kept.until_s:
            self._kept = None
        if not self._lessons:
            return False
        lesson = self._lessons[0]
        try:
            return lesson.advance()
        except Exception as error:  # noqa: BLE001  ends this run alone
            self._outbox.fail(lesson, error)
            return True

    def drop(self, run: str) -> None:
        for place, lesson in enumerate(self._lessons):
            if lesson.id != run:
                continue
            if place == 0:
                lesson.drop()
            else:
                self._outbox.end(lesson, Dropped(run=run))

    def pause(self, run: str, *, free: bool) -> None:
        """A slice under way ends with its step; with `free` nothing stays in memory."""
        if free:
            self._kept = None
        for place, lesson in enumerate(self._lessons):
            if lesson.id == run and place == 0:
                lesson.pause(free=free)
                return
        self.drop(run)

    def waiting(self) -> list[Run]:
        """Runs whose turn it is not, or whose checkpoint is being read or written."""
        lessons = list(self._lessons)
        return list(lessons) if self._porter.moving else list(lessons[1:])

    def everyone(self) -> list[Run]:
        return list(self._lessons)

    def forget_ended(self) -> None:
        freed = any(one.freed and one.id in self._outbox.ended for one in self._lessons)
        self._lessons = deque(one for one in self._lessons if one.id not in self._outbox.ended)
        if freed:
            self._device.give_back()

    def forget_kept(self) -> bool:
        """Frees what is kept between slices; true if a slice is running that will free more."""
        self._kept = None
        return bool(self._lessons)

    def _keep(self, job: Train, revision: str, run: TrainRun) -> None:
        until_s = self._clock() + KEEP_S
        self._kept = Kept(job=job, revision=revision, run=run, until_s=until_s)

    def _open(self, start: Start, job: Train, progress: Progress) -> TrainRun:
        kept, self._kept = self._kept, None
        revision = start.checkpoint.name if start.checkpoint else None
        if kept is not None and (kept.job, kept.revision) == (job, revision):
            return kept.run
        documents = [job.text] if job.text is not None else []
        if job.path is not None:
            documents = read_texts(job.path, self._text_dir)
        self._make_room(job, revision, progress)
        if revision is None and start.attempt > 1:
            revision = _unreported(self._store, job, start.seed)
        run = TrainRun.open(
            self._store,
            job,
            documents,
            seed=start.seed,
            revision=revision,
            device=self._device.main,
            autocast=self._device.autocast,
            part_flop=self._device.part_flop,
        )
        for layer in run.trainer.model.layers:
            layer.register_forward_hook(self._beat)
        return run

    def _beat(self, _: nn.Module, __: object, x_BTE: Tensor) -> None:
        """After each layer, forwards and backwards."""
        self._pulse()
        if x_BTE.requires_grad:
            x_BTE.register_hook(lambda _: self._pulse())  # type: ignore[no-untyped-call]

    def _make_room(self, job: Train, revision: str | None, progress: Progress) -> None:
        known = revision or self._store.current(job.model)
        if known:
            config = read_config(self._store.directory(job.model, known))
        else:
            config = ModelConfig.of_shape(job.shape)
        needed = config.parameters * BYTES_PER_PARAMETER
        value = f"{config.parameters} parameters"
        self._library.make_room(needed, "shape", value, progress)


def _unreported(store: ModelStore, job: Train, seed: int) -> str | None:
    """The checkpoint of a former attempt at this job that died before it could report it. To
    begin anew on top of it would train some steps twice."""
    revision = store.current(job.model)
    if revision is None:
        return None
    folder = store.directory(job.model, revision)
    try:
        plan = TrainPlan.of_job(job, seed=seed, config=read_config(folder))
        facts = read_json(folder / STATE_FILE)
    except (CheckpointError, InvalidJob):
        return None
    return revision if facts.get("plan") == dataclasses.asdict(plan) else None
