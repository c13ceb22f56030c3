"""A producer's way to Redis: outlives its restarts, and bounds how many threads wait at once.
Knows nothing of jobs."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TypeVar

import redis
from redis.exceptions import AuthenticationError, AuthorizationError, NoPermissionError

from noidle.connection import connect
from noidle.errors import ClusterUnavailable

T = TypeVar("T")
SPARE_CONNECTIONS = 4
"""Connections that waiting threads leave to the others' short calls."""
_FIRST_PAUSE_S = 0.05
_LONGEST_PAUSE_S = 1.0


class Link:
    """Thread-safe. Makes up to `connections` connections, each on first use."""

    def __init__(
        self,
        url: str,
        *,
        connections: int = 64,
        patience_s: float = 60.0,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._redis = connect(url, max_connections=connections)
        self._patience_s = patience_s
        self._clock = clock
        self._sleep = sleep
        self._waiters = threading.BoundedSemaphore(max(1, connections - SPARE_CONNECTIONS))
        self._answered = False

    def call(self, work: Callable[[redis.Redis], T], until_s: float | None = None) -> T:
        """Does `work`, again and again while Redis is away; `work` must bear repetition.

        A server that never answered this link is taken for a wrong address and not waited for.

        Args:
            until_s: the caller's own end, by this link's clock.

        Raises:
            ClusterUnavailable: Redis stayed away for longer than `patience_s`.
        """
        away_since_s: float | None = None
        pause_s = _FIRST_PAUSE_S
        while True:
            try:
                done = work(self._redis)
            except ClusterUnavailable as error:
                now_s = self._clock()
                away_since_s = now_s if away_since_s is None else away_since_s
                end_s = away_since_s + self._patience_s
                if until_s is not None:
                    end_s = min(end_s, until_s)
                if not self._answered or _refused(error) or now_s + pause_s > end_s:
                    raise
                self._sleep(pause_s)
                pause_s = min(2 * pause_s, _LONGEST_PAUSE_S)
            else:
                self._answered = True
                return done

    def now_s(self) -> float:
        return self._clock()

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """Around a call that blocks: more threads than connections take turns."""
        with self._waiters:
            yield

    def close(self) -> None:
        self._redis.close()


def _refused(error: ClusterUnavailable) -> bool:
    """A wrong password does not become right by waiting."""
    return isinstance(error.__cause__, AuthenticationError | AuthorizationError | NoPermissionError)
