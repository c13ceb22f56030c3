"""In which order jobs are served. Owns class order and the turns of training slices; knows
nothing of pools."""

from collections.abc import Iterable, Sequence

from noidle.jobs import JobClass
from routing.board import HeldJob

RANKS = {job_class: rank for rank, job_class in enumerate(JobClass)}


def in_order(jobs: Iterable[HeldJob]) -> list[HeldJob]:
    """Classes strictly one after the other; within one, first come first.

    A training slice that was held again comes back as a new arrival, so that a long training
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
    turns = [(_key(job, job.accepted_ms), job) for job in plain]
    for slices in training.values():
        turns += _turns(slices)
    turns.sort(key=lambda turn: turn[0])
    return [job for _, job in turns]


_Key = tuple[int, int, float, str]


def _turns(slices: Sequence[HeldJob]) -> list[tuple[_Key, HeldJob]]:
    by_service = sorted(slices, key=lambda job: (job.order, job.held_since_ms, job.id))
    arrivals = sorted(job.held_since_ms for job in slices)
    return [(_key(job, at), job) for job, at in zip(by_service, arrivals, strict=True)]


def _key(job: HeldJob, arrived_ms: int) -> _Key:
    return RANKS[job.job_class], arrived_ms, job.order, job.id
