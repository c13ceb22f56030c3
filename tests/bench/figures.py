"""What was measured, and what was aimed at. Owns the arithmetic of quantiles, ratios and their
spread; knows nothing of what is measured or how it is shown."""

import statistics
import time
from collections.abc import Callable, Iterator, Sequence

from pydantic import BaseModel, ConfigDict, computed_field

FEWEST_ROUNDS = 3


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Spread(_Record):
    """A figure that was taken once a round."""

    median: float
    # the middle half of the rounds lies between them
    low: float
    high: float
    rounds: tuple[float, ...]

    @classmethod
    def of(cls, values: Sequence[float]) -> "Spread":
        low, median, high = statistics.quantiles(values, n=4, method="inclusive")
        return cls(median=median, low=low, high=high, rounds=tuple(values))


class Latency(_Record):
    """Over all rounds; `mean_ms` shows what quantiles hide."""

    p50_ms: float
    p95_ms: float
    p99_ms: float
    mean_ms: float
    samples: int

    @classmethod
    def of(cls, samples_ms: Sequence[float]) -> "Latency":
        cuts = statistics.quantiles(samples_ms, n=100, method="inclusive")
        return cls(
            p50_ms=cuts[49],
            p95_ms=cuts[94],
            p99_ms=cuts[98],
            mean_ms=statistics.fmean(samples_ms),
            samples=len(samples_ms),
        )


class Aim(_Record):
    """A comparison with what was wanted of it; the median counts."""

    what: str
    found: Spread
    unit: str
    at_least: float | None = None
    at_most: float | None = None

    @computed_field  # type: ignore[prop-decorator]  # pydantic's own order of the two
    @property
    def met(self) -> bool:
        value = self.found.median
        low = self.at_least is None or value >= self.at_least
        return low and (self.at_most is None or value <= self.at_most)

    @property
    def wanted(self) -> str:
        if self.at_least is not None:
            return f"≥ {self.at_least:g}{self.unit}"
        return f"≤ {self.at_most:g}{self.unit}"


def rounds(
    most: int, budget_s: float, clock: Callable[[], float] = time.monotonic
) -> Iterator[int]:
    """Numbers of the rounds to run: fewer where a busy machine makes them long, but enough for a
    median."""
    began_s = clock()
    for number in range(most):
        if number >= FEWEST_ROUNDS and clock() - began_s > budget_s:
            return
        yield number


def ratios(above: Sequence[float], below: Sequence[float]) -> Spread:
    """Round by round, so that what disturbed a whole round cancels out."""
    return Spread.of([one / other for one, other in zip(above, below, strict=True)])


def differences(one: Sequence[float], other: Sequence[float]) -> Spread:
    return Spread.of([mine - theirs for mine, theirs in zip(one, other, strict=True)])
