"""Speeds fitted to measurements, and how sure they are.

Owns the arithmetic of one speed; knows nothing of what is measured, or when it is told.

Newer measurements count more, each older one `MEMORY` times as much as the one after it. One made
only to begin with something has a weight below 1. An error is a standard error, as a share of the
time. It is never small after few measurements, however alike they were: as if one more had been
`SCATTER` off."""

import math
from dataclasses import dataclass

MEMORY = 0.97
"""Weight that an older measurement keeps with each new one."""
STEP_MEMORY = 0.99
"""The same of decode steps: there are many more of them, and a hundred take some seconds."""
SCATTER = 0.7
"""How far off a measurement may be of which nothing else is known."""
FEW = 1.0
"""Of steps of other batch sizes so many are remembered, however long ago they were."""


@dataclass(slots=True)
class Sums:
    """Of weights, of x and y, and of their products."""

    n: float = 0.0
    x: float = 0.0
    y: float = 0.0
    xx: float = 0.0
    xy: float = 0.0
    yy: float = 0.0

    def add(self, x: float, y: float, weight: float) -> None:
        self.n += weight
        self.x += weight * x
        self.y += weight * y
        self.xx += weight * x * x
        self.xy += weight * x * y
        self.yy += weight * y * y

    def fade(self, share: float) -> None:
        self.n *= share
        self.x *= share
        self.y *= share
        self.xx *= share
        self.xy *= share
        self.yy *= share

    def __add__(self, other: "Sums") -> "Sums":
        return Sums(
            self.n + other.n,
            self.x + other.x,
            self.y + other.y,
            self.xx + other.xx,
            self.xy + other.xy,
            self.yy + other.yy,
        )

    def error(self, constant: float, slope: float) -> float | None:
        """Of constant + slope * x in place of y; None where nothing was measured."""
        if self.n <= 0 or self.yy <= 0:
            return None
        rest = (
            self.yy
            + constant**2 * self.n
            + slope**2 * self.xx
            - 2 * constant * self.y
            - 2 * slope * self.xy
            + 2 * constant * slope * self.x
        )
        return math.sqrt(SCATTER**2 + self.n * max(0.0, rest) / self.yy) / self.n


class Speed:
    """Units a second, heavier measurements counting more."""

    def __init__(self) -> None:
        self._sums = Sums()

    def add(self, units: float, spent_s: float, weight: float = 1.0) -> None:
        self._sums.fade(MEMORY)
        self._sums.add(units, spent_s, weight)

    @property
    def per_s(self) -> float | None:
        return self._sums.x / self._sums.y if self._sums.y > 0 else None

    @property
    def error(self) -> float | None:
        return self._sums.error(0.0, self._sums.y / self._sums.x) if self._sums.x > 0 else None


class Line:
    """Least squares of time over batch size: step_s + slope * batch. Sizes are told apart, in
    powers of two, so that a long time at one size leaves a little of what is known of others:
    else nothing would be known of the slope."""

    def __init__(self) -> None:
        self._sizes: dict[int, Sums] = {}

    def add(self, batch: int, spent_s: float, weight: float = 1.0) -> None:
        own = self._sizes.setdefault(batch.bit_length(), Sums())
        for sums in self._sizes.values():
            least = 0.0 if sums is own or not sums.n else min(1.0, FEW / sums.n)
            sums.fade(max(STEP_MEMORY, least))
        own.add(batch, spent_s, weight)

    def fit(self) -> tuple[float, float] | None:
        """Constant and slope, neither negative; None before the first point."""
        return _line(self._sums) if self._sizes else None

    @property
    def error(self) -> float | None:
        """Of a step of mean size."""
        return self._sums.error(*_line(self._sums)) if self._sizes else None

    @property
    def _sums(self) -> Sums:
        return sum(self._sizes.values(), Sums())


def _line(sums: Sums) -> tuple[float, float]:
    mean_x, mean_y = sums.x / sums.n, sums.y / sums.n
    spread = sums.xx / sums.n - mean_x**2
    # while all batches were of one size nothing is known of the slope
    slope = 0.0
    if spread > 1e-3 * mean_x**2:
        slope = max(0.0, (sums.xy / sums.n - mean_x * mean_y) / spread)
    constant = mean_y - slope * mean_x
    return (constant, slope) if constant >= 0 else (0.0, mean_y / mean_x)
