"""Time as described: steps follow each other without a gap, whatever this process loses between
them. Owns the moments; knows nothing of what a step does."""

import time
from collections.abc import Callable

LATE_S = 1.0
"""What is lost beyond this, as where a machine was suspended, is not caught up."""


class Pace:
    """A step that begins late, or wakes late, is followed by one that waits so much less."""

    def __init__(
        self,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._clock, self._sleep = clock, sleep
        self._due_s = clock()

    def begin(self) -> None:
        """The engine did nothing, or something that took its own time: the next step begins now."""
        self._due_s = self._clock()

    def spend(self, seconds: float) -> None:
        """Returns when a step that takes so long is over."""
        now_s = self._clock()
        self._due_s = max(self._due_s, now_s - LATE_S) + seconds
        if self._due_s > now_s:
            self._sleep(self._due_s - now_s)
