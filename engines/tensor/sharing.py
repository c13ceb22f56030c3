"""How much of the time training gets beside what reads and writes text.

Owns that rule, and the count of what training has had. Knows nothing of what either computes.
Whoever asks may be answered late by one part of a training step, so time is shared by waiting
after each part: twice as long after one that took twice as long."""

import math

from noidle.jobs import JobClass

RANKS = {job_class: rank for rank, job_class in enumerate(JobClass)}
"""Smaller ones go first."""
BESIDE = 1 / 2
"""Of the time at most, while others decode."""
LEAST = 1 / 16
"""Of the time, while a prompt of a higher class is unread: so training never stands still."""


def share_of_training(rank: int, *, others: bool, unread_rank: int | None) -> float:
    """`others` compute too; the most urgent prompt among theirs that is unread has a rank."""
    if not others:
        return 1.0
    return LEAST if unread_rank is not None and unread_rank < rank else BESIDE


class Turns:
    """Told of each part of training when it is over."""

    def __init__(self) -> None:
        self._spent_s, self._ended_s = 0.0, -math.inf

    def due(self, share: float, now_s: float) -> bool:
        """Whether another part may begin, so that training has had no more than its share since
        the last one began."""
        return now_s - self._ended_s >= self._spent_s * (1 / share - 1)

    def took(self, began_s: float, ended_s: float) -> None:
        self._spent_s, self._ended_s = ended_s - began_s, ended_s
