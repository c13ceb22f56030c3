"""How often a loop does what, and how it waits when it cannot. Owns intervals; knows nothing of
what is done."""

from collections.abc import Callable

SHORTEST_S, LONGEST_S = 0.1, 2.0


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
    """A row of failures: each is to be told once, and the waits between tries grow."""

    def __init__(self) -> None:
        self._wait_s = 0.0
        self._told: set[str] = set()

    def new(self, error: Exception) -> bool:
        """Whether this one was not there in this row yet."""
        kind = f"{type(error).__name__}: {error}"
        told = kind in self._told
        self._told.add(kind)
        return not told

    def wait_s(self) -> float:
        """Seconds before the next try."""
        self._wait_s = min(max(2 * self._wait_s, SHORTEST_S), LONGEST_S)
        return self._wait_s

    def over(self) -> bool:
        """A try succeeded; says whether that ends a row."""
        ended = bool(self._told)
        self._wait_s = 0.0
        self._told.clear()
        return ended
