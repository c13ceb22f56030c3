"""What the deciding router tells of itself. Owns the figures; knows nothing of where they go."""

from collections.abc import Callable
from typing import Protocol

from noidle.snapshot import PredictionError, RouterDetail
from routing.cluster import AS_TOLD
from routing.experience import Experience
from routing.profile import Profile

DRAIN_JOBS = 1_000
"""A producer that was refused tries again once about so many jobs will have started."""
SOONEST_S, LATEST_S = 1.0, 60.0
MEMORY_S = 10.0


class Counted(Protocol):
    """See routing.pump.Counters."""

    leased: int


class Report:
    """`clock` counts seconds and never goes back."""

    def __init__(self, router: str, counters: Counted, clock: Callable[[], float]) -> None:
        self._router = router
        self._counters = counters
        self._clock = clock
        self._leased = 0
        self._at_s = clock()
        self._leased_per_s = 0.0

    def make(self, profile: Profile, experience: Experience) -> RouterDetail:
        per_s = self._rate()
        error = experience.error()
        drag = {
            pool: (round(one.read, 2), round(one.decode, 2))
            for pool, one in experience.drag.items()
            if one != AS_TOLD
        }
        return RouterDetail(
            router=self._router,
            profile=profile.name.value,
            leased_per_s=round(per_s, 2),
            retry_s=min(max(DRAIN_JOBS / max(per_s, 0.001), SOONEST_S), LATEST_S),
            runs=error.runs if error else 0,
            error_p50=error.p50 if error else None,
            error_p95=error.p95 if error else None,
            error_bias=error.bias if error else None,
            errors={pool: _rounded(one) for pool, one in experience.errors().items()},
            drag=drag,
        )

    def _rate(self) -> float:
        """Smoothed over some seconds."""
        now_s, leased = self._clock(), self._counters.leased
        passed_s = now_s - self._at_s
        if passed_s > 0:
            weight = min(passed_s / MEMORY_S, 1.0)
            seen = (leased - self._leased) / passed_s
            self._leased_per_s += weight * (seen - self._leased_per_s)
            self._at_s, self._leased = now_s, leased
        return self._leased_per_s


def _rounded(error: PredictionError) -> PredictionError:
    return PredictionError(
        runs=error.runs,
        p50=round(error.p50, 3),
        p95=round(error.p95, 3),
        bias=round(error.bias, 3),
    )
