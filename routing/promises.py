"""The leases this router made, with their predicted ends. Owns what is remembered between two
looks; knows nothing of how ends are predicted.

The board only counts what is leased, so a lease that ended is noticed by the count: the one
that should have ended first goes. A wrong guess costs a little accuracy, never a slot."""

from collections.abc import Iterable, Mapping

from routing.board import PoolLoad
from routing.cluster import Promise
from routing.placement import Placement


class Promises:
    """By job: a job has one lease at most."""

    def __init__(self) -> None:
        self._by_job: dict[str, Promise] = {}

    def make(self, placement: Placement, now_ms: int) -> None:
        """Remembers a lease that was granted."""
        grant, pool, forecast = placement.grant, placement.pool, placement.forecast
        assert grant is not None
        assert pool is not None
        assert forecast is not None
        job = placement.job
        self._by_job[job.id] = Promise(
            job=job.id,
            pool=pool.pool,
            kind=job.kind,
            model=job.model,
            leased_ms=now_ms,
            ready_ms=now_ms + int(grant.ready_s * 1000),
            ends_ms=now_ms + int(forecast[0] * 1000),
            read_ms=None if job.kind == "train" else now_ms + int(grant.read_s * 1000),
            tokens=placement.need.tokens if placement.need else 0,
            step_s=grant.step_s,
            full_step_s=grant.full_step_s,
            prompt_s=grant.prompt_s,
            drag=placement.drag,
        )

    def end(self, job: str) -> Promise | None:
        """The job's run is over; the promise, if this router made it."""
        return self._by_job.pop(job, None)

    def drop(self, jobs: Iterable[str]) -> None:
        """These have no lease: they are held, again or still."""
        for job in jobs:
            self._by_job.pop(job, None)

    def settle(self, loads: Mapping[str, PoolLoad]) -> dict[str, tuple[Promise, ...]]:
        """What is left once as many leases are forgotten as have ended, by pool."""
        by_pool: dict[str, list[Promise]] = {}
        for promise in self._by_job.values():
            by_pool.setdefault(promise.pool, []).append(promise)
        left: dict[str, tuple[Promise, ...]] = {}
        for pool, made in by_pool.items():
            load = loads.get(pool)
            ended = len(made) - (load.in_flight if load else 0)
            if ended > 0:
                made.sort(key=_ends_ms)
                self.drop(promise.job for promise in made[:ended])
            left[pool] = tuple(made[max(ended, 0) :])
        return left


def _ends_ms(promise: Promise) -> int:
    return promise.ends_ms
