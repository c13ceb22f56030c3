"""Room in a pool: what is leased, and what is not."""

import pytest

from noidle.results import JobState
from noidle.snapshot import PoolState, Pressure
from routing.board import PoolLoad
from tests.contract.board_world import (
    POOL,
    Cluster,
    generate,
    lease_of,
    snapshot,
)


def test_a_lease_is_granted_once_and_pushes_its_message(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    assert cluster.board.lease(cluster.role, [lease_of("a", "one"), lease_of("a", "two")]) == [
        True,
        False,
    ]
    assert cluster.world.pop("cpu") == "message of one"
    assert cluster.world.pop("cpu") is None
    assert cluster.state("a") is JobState.LEASED
    assert cluster.held() == []
    assert [kept.action for kept in cluster.board.decisions("a")] == ["lease"]


def test_the_same_lease_again_is_granted_again_without_a_second_message(cluster: Cluster) -> None:
    """An answer that was lost on the way is asked for again."""
    cluster.accept(generate("a"))
    assert cluster.lease("a", "one") is True
    assert cluster.lease("a", "one") is True
    assert cluster.world.pop("cpu") == "message of one"
    assert cluster.world.pop("cpu") is None


def test_slots_are_never_exceeded_within_one_batch(cluster: Cluster) -> None:
    jobs = [f"job-{number}" for number in range(6)]
    cluster.accept(*map(generate, jobs))
    granted = cluster.board.lease(cluster.role, [lease_of(job, job) for job in jobs])
    assert granted == [True] * 4 + [False] * 2
    assert cluster.board.loads()[POOL].in_flight == 4
    cluster.board.claim("job-0", "job-0", POOL, 1)
    assert cluster.lease("job-4") is False
    cluster.finish("job-0", "job-0")
    assert cluster.lease("job-4") is True


def test_kv_tokens_and_memory_are_never_promised_twice(cluster: Cluster) -> None:
    cluster.accept(*map(generate, "abcd"))
    kv = {"kv_tokens": 60, "kv_tokens_total": 100}
    assert cluster.lease("a", **kv) is True
    assert cluster.lease("b", **kv) is False
    assert cluster.lease("b", **{**kv, "kv_tokens": 40}) is True
    memory = {"memory_bytes": 3 << 30, "memory_free_bytes": 5 << 30}
    assert cluster.lease("c", **memory) is True
    assert cluster.lease("d", **memory) is False
    load = PoolLoad(in_flight=3, kv_tokens=100, memory_bytes=3 << 30)
    assert cluster.board.loads() == {POOL: load}


def test_one_batch_counts_what_it_granted_itself(cluster: Cluster) -> None:
    cluster.accept(*map(generate, "abcd"))
    needs = {"kv_tokens": 60, "kv_tokens_total": 100}
    assert cluster.board.lease(
        cluster.role, [lease_of("a", "1", **needs), lease_of("b", "2", **needs)]
    ) == [True, False]
    needs = {"memory_bytes": 3, "memory_free_bytes": 5}
    assert cluster.board.lease(
        cluster.role, [lease_of("c", "3", **needs), lease_of("d", "4", **needs)]
    ) == [True, False]
    cluster.board.publish(snapshot("gpu@there"))
    assert cluster.board.lease(
        cluster.role,
        [
            lease_of("b", "5", pool="gpu@there", alone=True),
            lease_of("d", "6", pool="gpu@there"),
        ],
    ) == [True, False]


def test_memory_that_shows_in_the_snapshot_is_not_counted_again(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"))
    memory = {"memory_bytes": 3 << 30, "memory_free_bytes": 5 << 30}
    cluster.start("a", **memory)
    assert cluster.lease("b", **memory) is False
    cluster.world.pass_time(11)
    cluster.refresh()
    assert cluster.lease("b", **memory) is True


@pytest.mark.parametrize(
    "now",
    [
        {"state": PoolState.DRAINING},
        {"state": PoolState.STARTING},
        {"state": PoolState.FAILED},
        {"pressure": Pressure.HARD},
    ],
)
def test_a_pool_that_takes_nothing_gets_no_lease(cluster: Cluster, now: dict[str, object]) -> None:
    cluster.accept(generate("a"))
    cluster.board.publish(snapshot(**now))
    assert cluster.lease("a") is False
    cluster.board.publish(snapshot(pressure=Pressure.SOFT))
    assert cluster.lease("a") is True


def test_a_pool_without_a_fresh_snapshot_counts_as_full(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    assert cluster.lease("a", pool="gpu@nowhere") is False
    cluster.world.pass_time(350)
    cluster.role = cluster.take_role()
    assert cluster.board.pools() == []
    assert cluster.lease("a") is False


def test_a_pool_that_left_is_forgotten(cluster: Cluster) -> None:
    cluster.board.publish(snapshot("gpu@there"))
    assert [one.pool for one in cluster.board.pools()] == [POOL, "gpu@there"]
    cluster.board.leave(POOL)
    assert [one.pool for one in cluster.board.pools()] == ["gpu@there"]


def test_a_snapshot_says_when_it_was_published(cluster: Cluster) -> None:
    before = cluster.board.now_ms()
    cluster.board.publish(snapshot(models=("x",)))
    (shown,) = cluster.board.pools()
    assert before <= shown.published_ms <= cluster.board.now_ms()
    assert shown.models == ("x",)


def test_the_first_pass_of_all_takes_nothing_away(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    cluster.world.pass_time(10_000)
    cluster.role = cluster.take_role()
    assert cluster.board.reap(cluster.role) == []
    assert cluster.state("a") is JobState.RUNNING


def test_pools_that_share_a_device_are_never_promised_its_memory_twice(cluster: Cluster) -> None:
    beside = "gpu@here"
    cluster.board.publish(snapshot(beside))
    cluster.accept(*(generate(job) for job in "abcd"))
    here = {"memory_bytes": 60, "memory_free_bytes": 100, "sharers": (beside,)}
    there = {"memory_bytes": 30, "memory_free_bytes": 100, "sharers": (POOL,), "pool": beside}
    wishes = [
        lease_of("a", "1", **here),
        lease_of("b", "2", **there),
        lease_of("c", "3", **there),
        lease_of("d", "4", **{**here, "memory_bytes": 10}),
    ]
    assert cluster.board.lease(cluster.role, wishes) == [True, True, False, True]
    assert cluster.lease("c", "5", **{**there, "memory_bytes": 1}) is False
