"""Whether a pool still takes its messages: a worker can live, answer pings and be deaf.

Owns the judgement; what is done about it, and how lengths are read, is handed in."""

import logging
import time
from collections.abc import Callable

LOG = logging.getLogger("noidle.pool")
DEAF_S = 15.0
"""Longer than any reconnection takes once Redis answers."""


class Hearing:
    """`check` is called about once a second while Redis answers."""

    def __init__(
        self,
        waiting: Callable[[], int],
        free: Callable[[], bool],
        deaf: Callable[[], None],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """
        Args:
            waiting: how many messages lie in the pool's queues.
            free: whether the pool has a slot for one of them.
            deaf: called once.
        """
        self._waiting = waiting
        self._free = free
        self._deaf = deaf
        self._clock = clock
        self._since_s: float | None = None
        self._last_s: float | None = None
        self._over = False

    def check(self) -> None:
        now_s = self._clock()
        # a gap in the checks, as while Redis is away, says nothing about the messages
        gap = self._last_s is not None and now_s - self._last_s > DEAF_S / 3
        self._last_s = now_s
        if gap or not self._free() or not self._waiting():
            self._since_s = None
        elif self._since_s is None:
            self._since_s = now_s
        elif now_s - self._since_s >= DEAF_S and not self._over:
            self._over = True
            LOG.error("no message was taken for %g s, though slots are free; the pool ends", DEAF_S)
            self._deaf()
