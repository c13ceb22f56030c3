"""Who makes room for whom: which runs are to leave so that a job of a higher class can start.

Owns the choice, a pure function; knows nothing of the board or of how a run leaves. Nothing that is
as high or higher ever makes room, and nothing that did so too often in a row."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from noidle.jobs import JobClass
from routing.board import HeldJob
from routing.bounds import PREEMPTIONS_IN_A_ROW
from routing.order import RANKS
from routing.running import RunningJob

PAUSE_S = 0.25
"""Assumed between the wish and the room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a profile says of preemption."""

    # seconds that a class waits before lower ones make room for it; absent: they never do
    patience_s: Mapping[JobClass, float] = field(default_factory=dict)
    # kinds of work that never make room
    spared: frozenset[str] = frozenset()


RESPONSE_FIRST = Terms(patience_s={JobClass.INTERACTIVE: 0.25})
TRAINING_FIRST = Terms(patience_s=RESPONSE_FIRST.patience_s, spared=frozenset({"train"}))


@dataclass(frozen=True, slots=True, kw_only=True)
class Option:
    """A pool that could run a job if it had room, and what it lacks now."""

    pool: str
    # seconds to the job's end if it started there at once
    finish_s: float
    slots: int = 0
    kv_tokens: float = 0.0
    memory_bytes: float = 0.0
    # the pools on its device, itself among them: any of them may free memory
    sharers: tuple[str, ...] = ()

    @property
    def lacks(self) -> bool:
        return self.slots > 0 or self.kv_tokens > 0 or self.memory_bytes > 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Blocked:
    """A job that waits longer than its class should."""

    job: HeldJob
    # predicted if nobody makes room, from now; the end later by what it has waited already
    start_s: float
    finish_s: float
    options: Sequence[Option]
    # it could start elsewhere, though it would end later there: only training is to make room
    training_only: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Eviction:
    """One run leaves, for one job, which is to start in `pool`."""

    run: RunningJob
    blocked: Blocked
    pool: str
    free_memory: bool


def make_room(
    blocked: Iterable[Blocked], runs: Sequence[RunningJob], terms: Terms
) -> list[Eviction]:
    """Those that wait come in the order they are served. A run that is leaving already makes room
    for the first of them that it helps; it is among the answers, so that its room stays theirs."""
    taken: set[str] = set()
    found: list[Eviction] = []
    for head in blocked:
        able = [run for run in runs if run.id not in taken and _may_leave(run, head, terms)]
        evictions = _first(head, able)
        taken |= {one.run.id for one in evictions}
        found += evictions
    return found


def relieve(runs: Iterable[RunningJob]) -> list[RunningJob]:
    """What leaves pools whose memory runs out, whatever profile, class and row: all training."""
    return [run for run in runs if run.kind == "train" and not run.leaving]


def _may_leave(run: RunningJob, head: Blocked, terms: Terms) -> bool:
    if run.leaving:
        return True
    if head.training_only and run.kind != "train":
        return False
    lower = RANKS[run.job_class] > RANKS[head.job.job_class]
    return lower and run.kind not in terms.spared and run.preemptions < PREEMPTIONS_IN_A_ROW


def _first(head: Blocked, able: Sequence[RunningJob]) -> list[Eviction]:
    """In the pool where the job would end first, if that is sooner than by waiting."""
    for option in sorted(head.options, key=lambda one: one.finish_s):
        if option.finish_s + PAUSE_S >= head.finish_s:
            break
        leave = _leave(option, able)
        if leave:
            return [
                Eviction(
                    run=run,
                    blocked=head,
                    pool=option.pool,
                    free_memory=option.memory_bytes > 0,
                )
                for run in leave
            ]
    return []


_Lack = tuple[float, float, float]
"""Slots, tokens of KV cache, bytes."""


def _leave(option: Option, able: Sequence[RunningJob]) -> list[RunningJob]:
    """As few runs as do, the cheapest first; none where even all of them do not do."""
    if not option.lacks:
        return []
    lack = (option.slots, option.kv_tokens, option.memory_bytes)
    leave: list[RunningJob] = []
    left: _Lack = lack
    for run in sorted(able, key=_cost):
        gain = _gain(run, option)
        if any(part > 0 and more > 0 for part, more in zip(left, gain, strict=True)):
            leave.append(run)
            left = _less(left, gain)
        if not _lacks(left):
            return _needed(leave, lack, option)
    return []


def _cost(run: RunningJob) -> tuple[bool, int, bool, bool, int, str]:
    """Those on their way out cost nothing; a training loses nothing either, it keeps its state;
    text must be read again, with all that was emitted."""
    claimed = run.claimed_ms is not None
    return (
        not run.leaving,
        -RANKS[run.job_class],
        claimed,
        run.kind != "train",
        0 if run.kind == "train" else run.progress,
        run.id,
    )


def _gain(run: RunningJob, option: Option) -> _Lack:
    inside = run.pool == option.pool
    beside = inside or run.pool in option.sharers
    return int(inside), run.kv_tokens if inside else 0, run.memory_bytes if beside else 0


def _less(lack: _Lack, gain: _Lack) -> _Lack:
    return lack[0] - gain[0], lack[1] - gain[1], lack[2] - gain[2]


def _lacks(lack: _Lack) -> bool:
    return any(part > 0 for part in lack)


def _needed(leave: list[RunningJob], lack: _Lack, option: Option) -> list[RunningJob]:
    """Without those that later, larger ones made needless."""
    kept = list(leave)
    for run in reversed(leave[:-1]):
        left = lack
        for other in kept:
            left = _less(left, _gain(other, option)) if other is not run else left
        if not _lacks(left):
            kept.remove(run)
    return kept
