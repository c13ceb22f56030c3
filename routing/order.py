"""In which order jobs are served. Owns classes, turns between labels, what age and deadlines do,
and the turns of training slices; knows nothing of pools.

Classes come strictly one after the other. Within one, labels take turns: who has least running
goes first, so that one flood does not starve others. What has waited long is lifted by a class, up
to `standard`; and what starves in spite of it goes before all, a few at a time."""

import heapq
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field

from noidle.jobs import JobClass
from routing.board import HeldJob

RANKS = {job_class: rank for rank, job_class in enumerate(JobClass)}
LIFTED_TO = RANKS[JobClass.STANDARD]
"""A person who waits is not overtaken by what has become old."""
HORIZON_MS = 600_000
"""A job with a deadline counts as if it had come so long before it."""
WARM_MS = 30_000
"""A job whose whole prompt lies in some pool's cache counts as if it had come so much sooner: what
begins alike is read together, before the cache forgets it."""
FRONT = -1
"""The rank of what starves."""

Serving = Mapping[tuple[JobClass, str | None], int]
"""How many jobs of a class and label have a lease."""
_Key = tuple[float, float, str]
"""Within a rank: when it came, the order among its class, its id."""
_Keyed = list[tuple[_Key, HeldJob]]


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
    # by the hash of a prompt's beginning: the pools that likely hold its KV cache
    warm: Mapping[str, Set[str]] = field(default_factory=dict)


class Rank:
    """Jobs that come before all of a higher rank. They are put in order only when somebody wants
    them so: a look seldom gets behind the first ranks."""

    def __init__(self) -> None:
        self.plain: list[HeldJob] = []
        # those whose turn is not what they say themselves
        self.placed: _Keyed = []

    def jobs(self) -> list[HeldJob]:
        """In no order."""
        return self.plain + [job for _, job in self.placed]

    def has_deadlines(self) -> bool:
        return any(job.deadline_ms is not None for job in self.jobs())

    def in_turn(self, turns: Turns) -> list[HeldJob]:
        """The first to be served first."""
        keyed = [(_key(job, turns), job) for job in self.plain] + self.placed
        keyed.sort(key=_first)
        return _between_labels([job for _, job in keyed], turns)


class _Front(Rank):
    def in_turn(self, _turns: Turns) -> list[HeldJob]:
        return self.plain


def in_order(jobs: Iterable[HeldJob], turns: Turns) -> list[HeldJob]:
    """All jobs, the first to be served first."""
    return [job for rank in by_rank(jobs, turns) for job in rank.in_turn(turns)]


def by_rank(jobs: Iterable[HeldJob], turns: Turns) -> list[Rank]:
    """The first to be served first.

    A training slice that was held again comes back as a new arrival, so that a long training
    and a flood of other work of its class take turns. Which training has the turn is decided by
    the service each received: the one that had least goes first.
    """
    fresh: dict[JobClass, list[HeldJob]] = {}
    training: dict[JobClass, list[HeldJob]] = {}
    old: list[HeldJob] = []
    # of what came since nothing is lifted, and nothing starves
    since_ms = turns.now_ms - 1000 * min(turns.lift_s, turns.starve_s)
    for job in jobs:
        if job.kind == "train":
            training.setdefault(job.job_class, []).append(job)
        elif job.held_since_ms <= since_ms:
            old.append(job)
        elif job.job_class in fresh:
            fresh[job.job_class].append(job)
        else:
            fresh[job.job_class] = [job]
    ranks: defaultdict[int, Rank] = defaultdict(Rank)
    for job_class, plain in fresh.items():
        ranks[RANKS[job_class]].plain = plain
    front = _starving(old, turns)
    if front:
        ranks[FRONT] = _Front()
        ranks[FRONT].plain = front
    ids = {job.id for job in front}
    for job in old:
        if job.id not in ids:
            ranks[_rank(job, turns)].plain.append(job)
    for job_class, slices in training.items():
        ranks[0 if turns.training_first else RANKS[job_class]].placed += _slices(slices)
    return [ranks[rank] for rank in sorted(ranks)]


def starves(job: HeldJob, turns: Turns) -> bool:
    """It has waited so long in its place that it may go before all."""
    return job.kind != "train" and turns.now_ms - job.held_since_ms >= 1000 * turns.starve_s


def _key(job: HeldJob, turns: Turns) -> _Key:
    at_ms = job.accepted_ms
    if job.deadline_ms is not None:
        at_ms = min(at_ms, job.deadline_ms - HORIZON_MS)
    if job.beginnings and turns.warm:
        at_ms -= int(WARM_MS * _warm_share(job, turns))
    return at_ms, job.order, job.id


def _warm_share(job: HeldJob, turns: Turns) -> float:
    """Of its prompt, what some pool need not read again."""
    for size, digest in reversed(job.beginnings):
        if digest in turns.warm:
            return size / max(job.prompt_bytes, size)
    return 0.0


def _first(pair: tuple[_Key, HeldJob]) -> _Key:
    return pair[0]


def _rank(job: HeldJob, turns: Turns) -> int:
    rank = RANKS[job.job_class]
    if rank <= LIFTED_TO:
        return rank
    waited_ms = turns.now_ms - job.held_since_ms
    return max(rank - int(waited_ms / (1000 * turns.lift_s)), LIFTED_TO)


def _slices(slices: Sequence[HeldJob]) -> _Keyed:
    by_service = sorted(slices, key=lambda job: (job.order, job.held_since_ms, job.id))
    arrivals = sorted(job.held_since_ms for job in slices)
    return [((at, job.order, job.id), job) for job, at in zip(by_service, arrivals, strict=True)]


def _starving(old: Iterable[HeldJob], turns: Turns) -> list[HeldJob]:
    """The oldest of those that starve, as many as there is room for."""
    return heapq.nsmallest(
        max(turns.room, 0),
        [job for job in old if starves(job, turns)],
        key=lambda job: (job.held_since_ms, _rank(job, turns), _key(job, turns)),
    )


def _between_labels(jobs: list[HeldJob], turns: Turns) -> list[HeldJob]:
    """Each label's jobs keep their order; the next turn is of the label that has least, leases
    and turns together, by its weight."""
    labels = [job.label for job in jobs]
    found = set(labels)
    if len(found) < 2:
        return jobs
    steps = {label: 1 / _weight(label, turns) for label in found}
    had: dict[str | None, float] = {}
    counts: list[float] = []
    for job, label in zip(jobs, labels, strict=True):
        count = had.get(label)
        if count is None:
            count = turns.serving.get((job.job_class, label), 0) / _weight(label, turns)
        had[label] = count = count + steps[label]
        counts.append(count)
    # equal counts keep their order
    return [jobs[place] for place in sorted(range(len(jobs)), key=counts.__getitem__)]


def _weight(label: str | None, turns: Turns) -> float:
    return turns.weights.get(label, 1.0) if label else 1.0
