"""The leases this router made, with their predicted ends. Owns what is remembered between two
looks; knows nothing of how ends are predicted.

The board only counts what is leased, so a lease that ended is noticed by the count: the one
that should have ended first goes. A wrong guess costs a little accuracy, never a slot."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import replace
from itertools import compress, repeat
from operator import is_not

from noidle.jobs import JobClass
from routing.board import PoolLoad
from routing.cluster import Promise
from routing.placement import Placement

_IDLE = PoolLoad()


class Promises:
    """By job: a job has one lease at most. Pools of which nothing changed keep their tuple."""

    def __init__(self) -> None:
        # of each class and label, and of those that went before all because they starved
        self.serving: Counter[tuple[JobClass, str | None]] = Counter()
        self.lifted = 0
        self._pools: dict[str, str] = {}
        self._made: dict[str, dict[str, Promise]] = {}
        self._tuples: dict[str, tuple[Promise, ...]] = {}
        # the load that each pool had when its tuple was made
        self._settled: dict[str, PoolLoad] = {}
        # prompts sent to each pool so far
        self._sent_s: defaultdict[str, float] = defaultdict(float)

    def make(self, placement: Placement, now_ms: int) -> None:
        """Remembers a lease that was granted."""
        grant, pool, forecast = placement.grant, placement.pool, placement.forecast
        assert grant is not None
        assert pool is not None
        assert forecast is not None
        job = placement.job
        self.end(job.id)
        self._sent_s[pool.pool] += grant.prompt_s
        promise = Promise(
            job=job.id,
            pool=pool.pool,
            kind=job.kind,
            model=job.model,
            label=job.label,
            job_class=job.job_class,
            lifted=placement.lifted,
            leased_ms=now_ms,
            ready_ms=now_ms + int(grant.ready_s * 1000),
            ends_ms=now_ms + int(forecast[0] * 1000),
            read_ms=None if job.kind == "train" else now_ms + int(grant.read_s * 1000),
            tokens=placement.need.tokens if placement.need else 0,
            step_s=grant.step_s,
            full_step_s=grant.full_step_s,
            crowded_step_s=grant.crowded_step_s,
            prompt_s=grant.prompt_s,
            sent_s=self._sent_s[pool.pool],
            drag=placement.drag,
        )
        self._pools[job.id] = pool.pool
        self._made.setdefault(pool.pool, {})[job.id] = promise
        self._touch(pool.pool)
        self.serving[job.job_class, job.label] += 1
        self.lifted += promise.lifted

    def end(self, job: str) -> Promise | None:
        """The job's run is over; the promise, if this router made it."""
        pool = self._pools.pop(job, None)
        if pool is None:
            return None
        promise = self._made[pool].pop(job)
        self._touch(pool)
        if not self._made[pool]:
            del self._made[pool]
        key = promise.job_class, promise.label
        self.serving[key] -= 1
        if not self.serving[key]:
            del self.serving[key]
        self.lifted -= promise.lifted
        return replace(promise, later_s=self._sent_s[pool] - promise.sent_s)

    def drop(self, jobs: Iterable[str]) -> None:
        """These have no lease: they are held, again or still."""
        for job in jobs:
            self.end(job)

    def settle(self, loads: Mapping[str, PoolLoad]) -> dict[str, tuple[Promise, ...]]:
        """What is left once as many leases are forgotten as have ended, by pool."""
        # at the speed of C, since of nearly all pools nothing changed
        now = map(loads.get, self._made, repeat(_IDLE))
        settled = map(self._settled.get, self._made, repeat(None))
        others = list(compress(self._made, map(is_not, now, settled)))
        for pool in others:
            load = loads.get(pool, _IDLE)
            if load != self._settled.get(pool):
                self._settle(pool, load)
        return {**dict.fromkeys(others, ()), **self._tuples}

    def _settle(self, pool: str, load: PoolLoad) -> None:
        made = self._made[pool]
        ended = len(made) - load.in_flight
        if ended > 0:
            self.drop([one.job for one in sorted(made.values(), key=_ends_ms)[:ended]])
        left = self._made.get(pool)
        if left:
            self._tuples[pool] = tuple(left.values())
            self._settled[pool] = load

    def _touch(self, pool: str) -> None:
        self._tuples.pop(pool, None)
        self._settled.pop(pool, None)


def _ends_ms(promise: Promise) -> int:
    return promise.ends_ms
