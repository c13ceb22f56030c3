"""How many urgent jobs came lately. Owns the rate; knows nothing of what is made of it."""

import math
from collections.abc import Iterable

from noidle.jobs import JobClass
from routing.board import HeldJob

MEMORY_S = 10.0
"""What came so long ago counts a third."""


class Arrivals:
    """Of interactive jobs, as they are seen in the held sets. Few are missed: each is seen before
    it is leased."""

    def __init__(self) -> None:
        self._newest_ms = 0.0
        self._count = 0.0
        self._at_ms: int | None = None

    def note(self, held: Iterable[HeldJob], now_ms: int) -> None:
        self._age(now_ms)
        newest = self._newest_ms
        for job in held:
            # held again, a job has not come anew
            if job.job_class is JobClass.INTERACTIVE and job.order > newest:
                self._count += 1
                self._newest_ms = max(self._newest_ms, job.order)

    def per_s(self, now_ms: int) -> float:
        self._age(now_ms)
        return self._count / MEMORY_S

    def _age(self, now_ms: int) -> None:
        passed_ms = now_ms - (now_ms if self._at_ms is None else self._at_ms)
        self._count *= math.exp(-max(passed_ms, 0) / 1000 / MEMORY_S)
        self._at_ms = now_ms
