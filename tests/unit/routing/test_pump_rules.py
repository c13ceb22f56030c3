"""The rules that show only over time, through the pump and the board in memory: pools that fall
silent, lie or leave, and clocks that are off."""

import pytest

from noidle.results import JobResult, JobState
from noidle.snapshot import Rates
from routing.board import StepReport
from routing.pump import Pump
from tests.unit.routing.builders import make_pool
from tests.unit.routing.test_pump import Clock, Cluster

GRACE_S = 60.0
HOUR_MS = 3_600_000


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def reason(cluster: Cluster, job: str) -> str:
    result = cluster.board.result(job)
    assert result is not None
    assert result.error is not None
    assert (result.state, result.error.code) == (JobState.FAILED, "unplaceable")
    return result.error.message


def test_while_all_pools_are_silent_nothing_is_leased_and_nothing_fails(cluster: Cluster) -> None:
    for pool in ("cpu@a", "cpu@b", "cuda@a"):
        cluster.publish(pool)
    cluster.clock.now_s += 4
    cluster.accept("job-1")
    for _ in range(20):
        cluster.pump.look()
        cluster.clock.now_s += 30
    assert cluster.state("job-1") is JobState.HELD
    cluster.later(1, pool="cpu@b")
    cluster.pump.look()
    status = cluster.board.status("job-1")
    assert status is not None
    assert (status.state, status.pool) == (JobState.LEASED, "cpu@b")


def test_a_job_whose_only_pool_has_left_fails_with_the_reason_after_the_grace_time(
    cluster: Cluster,
) -> None:
    cluster.publish("cpu@a")
    cluster.publish("cuda@a", slots=1)
    for job in ("running", "held"):
        cluster.accept(job, engine="cuda")
    cluster.pump.look()
    cluster.board.leave("cuda@a")
    cluster.later(1)
    cluster.pump.look()
    cluster.later(GRACE_S - 2)
    cluster.pump.look()
    assert cluster.state("held") is JobState.HELD
    cluster.later(3)
    cluster.pump.look()
    assert reason(cluster, "held") == (
        "no pool can run it: cpu@a the job wants engine cuda, this is cpu"
    )


def test_a_pool_that_comes_back_within_the_grace_time_gets_its_jobs(cluster: Cluster) -> None:
    cluster.publish("cpu@a")
    cluster.publish("cuda@a")
    cluster.pump.look()
    cluster.board.leave("cuda@a")
    cluster.accept("held", engine="cuda")
    for _ in range(3):
        cluster.later(GRACE_S / 4)
        cluster.pump.look()
    cluster.publish("cuda@a")
    cluster.later(1)
    cluster.pump.look()
    assert cluster.state("held") is JobState.LEASED


@pytest.mark.parametrize("slower", [10.0], ids=["ten_times_slower_than_it_claims"])
def test_a_pool_that_lies_gets_no_work_that_ends_sooner_elsewhere(
    cluster: Cluster, slower: float
) -> None:
    """Ten tokens take 1 s in `cuda@a` by its word, and ten in truth; in `cpu@a` two."""
    rates = {"cuda@a": 0.1, "cpu@a": 0.2}
    went = []
    for number in range(20):
        for pool, step_s in rates.items():
            cluster.publish(pool, rates=Rates(prefill_tokens_per_s=1000.0, step_s=step_s))
        job = f"job-{number}"
        cluster.accept(job)
        cluster.pump.look()
        status = cluster.board.status(job)
        assert status is not None
        assert status.pool is not None
        went.append(status.pool)
        _, token = cluster.claim(status.pool.partition("@")[0], status.pool)
        first = StepReport(job=job, token=token, text="x", tokens=(0,))
        cluster.board.report(status.pool, [first])
        cluster.clock.now_s += 9 * rates[status.pool] * (slower if status.pool == "cuda@a" else 1)
        done = JobResult(id=job, state=JobState.DONE, text="x" * 10, tokens=tuple(range(10)))
        assert cluster.board.finish(job, token, done)
    assert went[0] == "cuda@a"
    assert went[-5:] == ["cpu@a"] * 5


@pytest.mark.parametrize("hours", [-1, 1], ids=["slow", "fast"])
def test_what_a_hosts_clock_says_of_its_snapshot_does_not_count(
    cluster: Cluster, hours: int
) -> None:
    told_ms = int(cluster.clock.now_s * 1000) + hours * HOUR_MS
    cluster.publish("cpu@a", published_ms=told_ms)
    cluster.accept("job-1")
    cluster.pump.look()
    assert cluster.state("job-1") is JobState.LEASED
    # and a clock that is fast keeps no pool alive
    cluster.clock.now_s += 5
    cluster.accept("job-2")
    cluster.pump.look()
    assert cluster.state("job-2") is JobState.HELD


@pytest.mark.parametrize("own_s", [0.0, 4_000_000_000.0], ids=["of_1970", "of_2096"])
def test_a_routers_own_clock_only_counts_seconds(own_s: float) -> None:
    cluster, own = Cluster(), Clock()
    own.now_s = own_s
    pump = Pump(cluster.board, "router@b", clock=own, unplaceable_s=GRACE_S)
    cluster.publish("cpu@a")
    cluster.accept("late", deadline_s=0.5)
    cluster.accept("soon", deadline_s=5)
    cluster.accept("never", engine="cuda")
    pump.look()
    assert cluster.state("late") is JobState.FAILED
    assert cluster.state("soon") is JobState.LEASED
    for seconds in (GRACE_S - 1, 2):
        assert cluster.state("never") is JobState.HELD
        own.now_s += seconds
        cluster.later(seconds)
        pump.look()
    assert "the job wants engine cuda" in reason(cluster, "never")


def test_three_pools_of_one_device_are_never_leased_more_memory_than_it_has() -> None:
    cluster = Cluster()
    card = {"device": "card", "slots": 4, "memory_free_bytes": 500, "working_bytes": 100}
    pools = [f"cuda.{number}@a" for number in (1, 2, 3)]
    for pool in pools:
        cluster.publish(pool, **card)
    for number in range(12):
        cluster.accept(f"job-{number}")
    for _ in range(3):
        cluster.pump.look()
    loads = cluster.board.loads()
    assert sum(load.memory_bytes for load in loads.values()) == 500
    assert sum(load.in_flight for load in loads.values()) == 5
    assert make_pool(pools[0], **card).memory_free_bytes == 500
