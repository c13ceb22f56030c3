"""What the board can say of how long a job waited, and for what."""

import pytest

from noidle.results import Decision, JobError, Waited
from tests.contract.board_world import POOL, Cluster, RedisWorld, generate, lease_of


def note(cluster: Cluster, cause: str, job: str = "a", action: str = "wait") -> None:
    told = Decision(job=job, at_ms=1, action=action, cause=cause, pool=POOL, reason=cause)
    cluster.board.note([told])


def lease(cluster: Cluster, token: str, cause: str | None = None, job: str = "a") -> None:
    cluster.refresh()
    told = Decision(job=job, at_ms=1, action="lease", cause=cause, pool=POOL, reason="room")
    wish = lease_of(job, token, decision=told)
    assert cluster.board.lease(cluster.role, [wish]) == [True]


def waited(cluster: Cluster, job: str = "a") -> Waited:
    """To the second: Redis's clock runs while a test does."""
    found = cluster.board.waited(job)
    assert found is not None
    causes = {cause: round(span_s) for cause, span_s in found.causes.items()}
    return Waited(held_s=round(found.held_s), causes=causes)


def test_a_wait_is_told_by_its_causes_while_it_lasts(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    assert waited(cluster) == Waited(held_s=0)
    cluster.world.pass_time(10)
    assert waited(cluster) == Waited(held_s=10)
    # the first cause was that of the time before it was noted too
    note(cluster, "full")
    assert waited(cluster) == Waited(held_s=10, causes={"full": 10})
    cluster.world.pass_time(20)
    note(cluster, "reading")
    cluster.world.pass_time(5)
    note(cluster, "full")
    cluster.world.pass_time(1)
    assert waited(cluster) == Waited(held_s=36, causes={"full": 31, "reading": 5})


def test_it_ends_with_the_lease_and_goes_on_when_the_job_is_held_again(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.world.pass_time(10)
    note(cluster, "full")
    cluster.world.pass_time(10)
    lease(cluster, "first", cause="spare")
    cluster.world.pass_time(100)
    assert waited(cluster) == Waited(held_s=20, causes={"full": 20})
    cluster.board.claim("a", "first", POOL, 1)
    cluster.board.hand_back("a", "first")
    cluster.world.pass_time(30)
    note(cluster, "kv")
    cluster.world.pass_time(3)
    assert waited(cluster) == Waited(held_s=53, causes={"full": 20, "kv": 33})


def test_a_wait_too_short_to_be_noted_is_told_by_the_lease_that_ends_it(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"))
    cluster.world.pass_time(7)
    lease(cluster, "first", cause="spare")
    lease(cluster, "second", job="b")
    assert waited(cluster) == Waited(held_s=7, causes={"spare": 7})
    assert waited(cluster, "b") == Waited(held_s=7)


def test_a_note_of_the_same_cause_changes_nothing(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    for pool in ("one", "other"):
        cluster.world.pass_time(10)
        told = Decision(job="a", at_ms=1, action="wait", cause="full", pool=pool, reason="full")
        cluster.board.note([told])
    assert waited(cluster) == Waited(held_s=20, causes={"full": 20})


@pytest.mark.parametrize("end", ["cancelled", "failed", "expired"])
def test_it_stays_when_the_job_ends_without_a_slot(cluster: Cluster, end: str) -> None:
    cluster.accept(generate("a", expires_s=12))
    cluster.world.pass_time(8)
    note(cluster, "closed")
    if end == "cancelled":
        cluster.board.cancel("a")
    elif end == "failed":
        cluster.board.fail("a", JobError(code="unplaceable", message="no"))
    cluster.world.pass_time(50)
    cluster.held()
    held_s = 58 if end == "expired" else 8
    assert waited(cluster) == Waited(held_s=held_s, causes={"closed": held_s})
    result = cluster.board.result("a")
    assert result is not None
    assert result.times.held_ms == pytest.approx(1000 * held_s, abs=500)
    assert result.state == end


def test_nothing_is_known_of_a_job_that_is_not_known(cluster: Cluster) -> None:
    assert cluster.board.waited("a") is None


def test_a_job_that_nobody_noted_costs_no_field(cluster: Cluster) -> None:
    if not isinstance(cluster.world, RedisWorld):
        pytest.skip("the memory board has no fields to spare")
    cluster.accept(generate("a"))
    lease(cluster, "first")
    fields = cluster.world.client.hkeys("noidle:job:a")
    assert not {"waits", "cause", "cause_at"} & set(fields)  # type: ignore[arg-type]  # redis-py
