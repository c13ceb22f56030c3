"""How often a loop does what, and how it waits when it cannot. Owns intervals; knows nothing of
what is done."""

from collections.abc import Callable

SHORTEST_S, LONGEST_S = 0.1, 2.0
TOLD_EVERY_S = 60.0
"""A failure that goes on is told again after this."""


class Timer:
    """Due at once, then every `every_s`; `clock` counts seconds and never goes back."""

    def __init__(self, clock: Callable[[], float], every_s: float) -> None:
        self._clock = clock
        self._every_s = every_s
        self._last_s: float | None = None

    def due(self) -> bool:
        now_s = self._clock()
        if self._last_s is not None and now_s - self._last_s < self._every_s:
            return False
        self._last_s = now_s
        return True


class Trouble:
    """Rows of failures: the waits between tries grow, and each failure is told once in a while,
    though it may come and go."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wait_s = 0.0
        self._told_s: dict[str, float] = {}
        # something was told, and its end was not
        self._open = False

    def new(self, error: Exception) -> bool:
        """Whether it is to be told."""
        kind, now_s = f"{type(error).__name__}: {error}", self._clock()
        self._told_s = {
            key: at_s for key, at_s in self._told_s.items() if now_s - at_s < TOLD_EVERY_S
        }
        if kind in self._told_s:
            return False
        self._told_s[kind] = now_s
        self._open = True
        return True

    def wait_s(self) -> float:
        """Seconds before the next try."""
        self._wait_s = min(max(2 * self._wait_s, SHORTEST_S), LONGEST_S)
        return self._wait_s

    def over(self) -> bool:
        """A try succeeded; says whether that is to be told."""
        ended, self._open = self._open, False
        self._wait_s = 0.0
        return ended
