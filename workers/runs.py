"""The jobs a pool has claimed and not ended yet.

Owns the table that task threads, the board loop and the drain share. Knows nothing of Redis or
of how an engine is spoken to."""

import threading
from dataclasses import dataclass, field
from enum import StrEnum

from noidle.results import JobResult
from routing.board import Claim


class Ending(StrEnum):
    """How a run left its pool."""

    ENDED = "ended"  # its result is written, whatever it says
    YIELDED = "yielded"  # a training slice is over, the job is held again
    HANDED_BACK = "handed back"  # the job is held again
    LOST = "lost"  # another attempt owns the job, or nobody knows it any more


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What a task thread is told."""

    ending: Ending
    # with ENDED
    result: JobResult | None = None


@dataclass(slots=True, kw_only=True, eq=False)
class Run:
    """One attempt at one job; its lease's token names it, to the engine too."""

    token: str
    claim: Claim
    # life of the engine that got it
    generation: int
    # time of the pool's clock at which it last moved
    moved_s: float
    # the engine has worked on it, and has emitted something of it
    begun: bool = False
    emitted: bool = False
    # somebody cancelled the job: whatever the engine says, it ends as cancelled
    cancelled: bool = False
    # its deadline passed: unless its engine says that it is done, it ends as failed
    overdue: bool = False
    # it is to make room, and the engine was told so; with its memory, too
    paused: bool = False
    freed: bool = False
    # the job goes back; absent: it may stay. Time of the pool's clock at which to stop waiting
    # for the engine's last word
    leave_at_s: float | None = None
    # what this attempt emitted so far, where a deadline may end it
    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    outcome: Outcome | None = None
    _over: threading.Event = field(default_factory=threading.Event)

    @property
    def job_id(self) -> str:
        return self.claim.job.id

    def keep(self, text: str, tokens: tuple[int, ...]) -> None:
        """Of what it emits, what a result that comes too early is to show."""
        if self.claim.job.deadline_s is not None and (text or tokens):
            self.texts.append(text)
            self.tokens += tokens

    def wait(self) -> Outcome:
        """Blocks the task's thread until the run left the pool."""
        self._over.wait()
        assert self.outcome is not None
        return self.outcome

    def end(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self._over.set()


class Runs:
    """By token. Safe between threads."""

    def __init__(self) -> None:
        self._runs: dict[str, Run] = {}
        self._changed = threading.Condition()

    def __len__(self) -> int:
        return len(self._runs)

    def add(self, run: Run) -> bool:
        """False if the run is there already: the same message came twice."""
        with self._changed:
            if run.token in self._runs:
                return False
            self._runs[run.token] = run
            return True

    def get(self, token: str) -> Run | None:
        return self._runs.get(token)

    def all(self) -> list[Run]:
        with self._changed:
            return list(self._runs.values())

    def end(self, run: Run, outcome: Outcome) -> None:
        """Takes the run out and lets its thread go."""
        with self._changed:
            self._runs.pop(run.token, None)
            self._changed.notify_all()
        run.end(outcome)

    def wait_until_empty(self, timeout_s: float) -> bool:
        with self._changed:
            return self._changed.wait_for(lambda: not self._runs, timeout_s)
