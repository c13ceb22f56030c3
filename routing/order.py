"""In which order jobs are served. Owns classes, turns between labels, what age and deadlines do,
and the turns of training slices; knows nothing of pools.

Classes come strictly one after the other. Within one, labels take turns: who has least running
goes first, so that one flood does not starve others. What has waited long is lifted by a class, up
to `standard`; and what starves in spite of it goes before all, a few at a time."""

import heapq
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from noidle.jobs import JobClass
from routing.board import HeldJob

RANKS = {job_class: rank for rank, job_class in enumerate(JobClass)}
LIFTED_TO = RANKS[JobClass.STANDARD]
"""A person who waits is not overtaken by what has become old."""
HORIZON_MS = 600_000
"""A job with a deadline counts as if it had come so long before it."""
FRONT = -1
"""The rank of what starves."""

Serving = Mapping[tuple[JobClass, str | None], int]
"""How many jobs of a class and label have a lease."""
_Key = tuple[int, int, float, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Turns:
    """What the order depends on besides the jobs."""

    now_ms: int
    serving: Serving = field(default_factory=dict)
    # training is served as if a person waited for it
    training_first: bool = False
    # of what starves so many may go before all
    room: int = 1
    # seconds after which a job counts as one class higher, each time; and after which it starves
    lift_s: float = 600.0
    starve_s: float = 1800.0
    # shares of a class relative to other labels; absent: 1
    weights: Mapping[str, float] = field(default_factory=dict)


def in_order(jobs: Iterable[HeldJob], turns: Turns) -> list[HeldJob]:
    """A training slice that was held again comes back as a new arrival, so that a long training
    and a flood of other work of its class take turns. Which training has the turn is decided by
    the service each received: the one that had least goes first.
    """
    plain: list[HeldJob] = []
    training: dict[JobClass, list[HeldJob]] = {}
    for job in jobs:
        if job.kind == "train":
            training.setdefault(job.job_class, []).append(job)
        else:
            plain.append(job)
    keyed = [(_key(job, job.accepted_ms, turns), job) for job in plain]
    for slices in training.values():
        keyed += _slices(slices, first=turns.training_first)
    keyed.sort(key=lambda pair: pair[0])
    return _between_labels(_starving_first(keyed, turns), turns)


def starves(job: HeldJob, turns: Turns) -> bool:
    """It has waited so long in its place that it may go before all."""
    return job.kind != "train" and turns.now_ms - job.held_since_ms >= 1000 * turns.starve_s


def _key(job: HeldJob, arrived_ms: int, turns: Turns) -> _Key:
    if job.deadline_ms is not None:
        arrived_ms = min(arrived_ms, job.deadline_ms - HORIZON_MS)
    rank = RANKS[job.job_class]
    waited_ms = turns.now_ms - job.held_since_ms
    if rank > LIFTED_TO and waited_ms >= 1000 * turns.lift_s:
        rank = max(rank - int(waited_ms / (1000 * turns.lift_s)), LIFTED_TO)
    return rank, arrived_ms, job.order, job.id


def _slices(slices: Sequence[HeldJob], *, first: bool) -> list[tuple[_Key, HeldJob]]:
    by_service = sorted(slices, key=lambda job: (job.order, job.held_since_ms, job.id))
    arrivals = sorted(job.held_since_ms for job in slices)
    return [
        ((0 if first else RANKS[job.job_class], at, job.order, job.id), job)
        for job, at in zip(by_service, arrivals, strict=True)
    ]


def _starving_first(keyed: list[tuple[_Key, HeldJob]], turns: Turns) -> list[tuple[_Key, HeldJob]]:
    """The oldest of those that starve, as many as there is room for, come first."""
    since_ms = turns.now_ms - 1000 * turns.starve_s
    if all(job.held_since_ms > since_ms for _, job in keyed):
        return keyed
    old = [pair for pair in keyed if starves(pair[1], turns)]
    first = heapq.nsmallest(max(turns.room, 0), old, key=lambda pair: pair[1].held_since_ms)
    if not first:
        return keyed
    ids = {job.id for _, job in first}
    rest = [pair for pair in keyed if pair[1].id not in ids]
    return [((FRONT, *key[1:]), job) for key, job in first] + rest


def _between_labels(keyed: list[tuple[_Key, HeldJob]], turns: Turns) -> list[HeldJob]:
    """Within one rank each label's jobs keep their order; the next turn is of the label that has
    least, leases and turns together, by its weight."""
    if len({job.label for _, job in keyed}) < 2:
        return [job for _, job in keyed]
    had: dict[tuple[int, str | None], float] = {}
    turn: list[tuple[int, float, int, HeldJob]] = []
    for place, (key, job) in enumerate(keyed):
        at = (key[0], job.label)
        weight = turns.weights.get(job.label, 1.0) if job.label else 1.0
        count = had.get(at)
        if count is None:
            count = turns.serving.get((job.job_class, job.label), 0) / weight
        had[at] = count = count + 1 / weight
        turn.append((key[0], 0.0 if key[0] == FRONT else count, place, job))
    turn.sort(key=lambda one: one[:3])
    return [job for *_, job in turn]
