"""The policy replayed in virtual time: what many decisions in a row add up to."""

import heapq
from collections.abc import Sequence

from noidle.jobs import JobClass
from noidle.snapshot import PoolSnapshot
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster, Promise
from routing.policy import decide
from tests.unit.routing.builders import MODEL, NOW_MS, make_job, make_pool

HEADS = 32
"""As many of each held set as the pump reads."""


class Replay:
    """Decides again each time a job ends; runs take what the policy predicted, times `error`."""

    def __init__(self, pools: Sequence[PoolSnapshot], jobs: Sequence[HeldJob], error: float = 1.0):
        self.pools = tuple(pools)
        self.held = list(jobs)
        self.error = error
        self.now_ms = NOW_MS
        self.ends: list[tuple[int, str, str]] = []
        self.running: dict[str, Promise] = {}
        # job to seconds from the start of the replay
        self.started: dict[str, float] = {}
        self.ended: dict[str, float] = {}
        self.placed: dict[str, str] = {}

    def run(self) -> "Replay":
        self._decide()
        while self.ends:
            self.now_ms, job, _ = heapq.heappop(self.ends)
            self.ended[job] = (self.now_ms - NOW_MS) / 1000
            del self.running[job]
            self._decide()
        return self

    @property
    def took_s(self) -> float:
        return max(self.ended.values())

    def _decide(self) -> None:
        placements = decide(self._heads(), self._cluster(), self.now_ms)
        for placement in placements:
            if placement.grant is None or placement.pool is None or placement.forecast is None:
                continue
            job, pool = placement.job, placement.pool.pool
            predicted_ms = self.now_ms + int(placement.forecast[0] * 1000)
            real_ms = self.now_ms + int(placement.forecast[0] * 1000 * self.error)
            heapq.heappush(self.ends, (real_ms, job.id, pool))
            self.running[job.id] = Promise(
                job=job.id,
                pool=pool,
                kind=job.kind,
                model=job.model,
                leased_ms=self.now_ms,
                ready_ms=self.now_ms,
                ends_ms=predicted_ms,
            )
            self.started[job.id] = (self.now_ms - NOW_MS) / 1000
            self.placed[job.id] = pool
        gone = set(self.running) | set(self.ended)
        self.held = [job for job in self.held if job.id not in gone]

    def _heads(self) -> list[HeldJob]:
        seen: dict[JobClass, int] = {}
        heads = []
        for job in self.held:
            seen[job.job_class] = seen.get(job.job_class, 0) + 1
            if seen[job.job_class] <= HEADS:
                heads.append(job)
        return heads

    def _cluster(self) -> Cluster:
        promises: dict[str, tuple[Promise, ...]] = {}
        for promise in self.running.values():
            promises[promise.pool] = (*promises.get(promise.pool, ()), promise)
        return Cluster(
            pools=tuple(
                pool.model_copy(update={"published_ms": self.now_ms}) for pool in self.pools
            ),
            loads={pool: PoolLoad(in_flight=len(made)) for pool, made in promises.items()},
            models={"mini": MODEL},
            promises=promises,
        )


ONE_FAST_FOUR_SLOW = [
    make_pool("cuda@a", tokens_per_s=10),
    make_pool("cpu@a", tokens_per_s=2, slots=4, rates=make_pool(tokens_per_s=2).rates),
]


def test_a_hundred_jobs_on_one_fast_and_four_slow_slots_take_hardly_longer_than_they_must() -> None:
    """One job a second on the fast slot, one in five on each slow one: 100 / 1.8 = 55.6 s."""
    replay = Replay(ONE_FAST_FOUR_SLOW, [make_job() for _ in range(100)]).run()
    assert len(replay.ended) == 100
    assert replay.took_s <= 57.0


def test_predictions_that_are_off_by_a_third_cost_little() -> None:
    late = Replay(ONE_FAST_FOUR_SLOW, [make_job() for _ in range(100)], error=1.33).run()
    assert late.took_s <= 57.0 * 1.33 * 1.03


def test_no_slot_idles_while_many_jobs_wait() -> None:
    replay = Replay(ONE_FAST_FOUR_SLOW, [make_job() for _ in range(100)]).run()
    on_slow = [job for job, pool in replay.placed.items() if pool == "cpu@a"]
    # four at a time, 5 s each, until the last seconds
    assert len(on_slow) >= 40


def test_an_urgent_job_starts_before_the_flood_that_waits() -> None:
    flood = [make_job(job_class=JobClass.BACKGROUND) for _ in range(300)]
    urgent = make_job(job_class=JobClass.INTERACTIVE)
    replay = Replay([make_pool("cpu@a", slots=8)], [*flood, urgent])
    replay.run()
    assert replay.started[urgent.id] == 0.0
    assert len(replay.ended) == 301
