"""The endless training behind a simulated trace, as its board record would be. Owns its turns in
pools and the service it had; knows nothing of how fast it goes there."""

import math
from dataclasses import replace

from noidle.jobs import JobClass
from routing.board import HeldJob
from routing.simulation.described import LESSON
from routing.simulation.request import clock_ms

SLICE_S = 5.0
"""As a training has by default."""


class Lesson:
    """Held from the beginning; each slice makes way for others when it is over."""

    def __init__(self) -> None:
        begun_ms = clock_ms(0.0)
        self.job = HeldJob(
            id=LESSON,
            kind="train",
            model=LESSON,
            job_class=JobClass.BACKGROUND,
            engine=None,
            label=LESSON,
            prompt_bytes=0,
            max_tokens=0,
            storage=None,
            accepted_ms=begun_ms,
            held_since_ms=begun_ms,
            order=0.0,
        )
        # index of the pool, absent while it is held
        self.pool: int | None = None
        self._began_s = 0.0

    @property
    def ends_s(self) -> float:
        """When its slice is over."""
        return math.inf if self.pool is None else self._began_s + SLICE_S

    def begin(self, pool: int, now_s: float) -> None:
        self.pool, self._began_s = pool, now_s

    def end(self, now_s: float) -> HeldJob:
        """It is held again, in the order of the service that it had."""
        self.pool = None
        order = self.job.order + now_s - self._began_s
        self.job = replace(self.job, order=order, held_since_ms=clock_ms(now_s))
        return self.job
