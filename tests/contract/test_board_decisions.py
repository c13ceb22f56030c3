"""The pump's side of the board: its role, held sets, notes, the reaper."""

import threading

import pytest

from noidle.acceptance import RETRY_S
from noidle.errors import Overloaded
from noidle.profile import ProfileName
from noidle.results import JobError, JobState
from noidle.snapshot import Pressure, RouterDetail
from routing.board import Checkpoint, PumpRole, Refusal, StepReport
from routing.bounds import TOLD_MS, WEIGHTS_KEPT
from tests.contract.board_world import (
    ECHO,
    POOL,
    Cluster,
    World,
    decision,
    generate,
    lease_of,
    snapshot,
    train,
)


def test_one_router_holds_the_role_until_it_stops_renewing_it(cluster: Cluster) -> None:
    board = cluster.board
    assert board.take_pump("other") is None
    cluster.world.pass_time(200)
    assert board.take_pump("router") == cluster.role
    cluster.world.pass_time(200)
    assert board.take_pump("other") is None
    cluster.world.pass_time(300)
    taken = board.take_pump("other")
    assert taken is not None
    assert taken.fence > cluster.role.fence
    assert board.take_pump("router") is None


def test_a_router_that_ends_gives_its_role_away_at_once(cluster: Cluster) -> None:
    cluster.board.give_up_pump(PumpRole(router="router", fence=99))
    assert cluster.board.take_pump("other") is None
    cluster.board.give_up_pump(cluster.role)
    assert cluster.board.take_pump("other") is not None


def test_a_former_holder_decides_nothing(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.world.pass_time(400)
    cluster.board.publish(snapshot())
    assert cluster.lease("a") is False
    other = cluster.take_role("other")
    assert cluster.lease("a") is False
    assert cluster.board.reap(cluster.role) == []
    assert cluster.board.lease(other, [lease_of("a", "t")]) == [True]


def test_held_shows_the_heads_of_every_set_in_order(cluster: Cluster) -> None:
    for number in range(50):
        cluster.accept(generate(f"batch-{number:02}", **{"class": "batch"}))
    cluster.accept(generate("first", **{"class": "interactive"}))
    cluster.accept(generate("long", prompt="x" * 90_000, **{"class": "batch"}))
    shown = cluster.board.held(3)
    assert [job.id for job in shown if job.job_class == "interactive"] == ["first"]
    assert {job.id for job in shown} == {"first", "long", "batch-00", "batch-01", "batch-02"}
    assert [job.id for job in shown if job.id.startswith("batch")] == [
        "batch-00",
        "batch-01",
        "batch-02",
    ]


def test_what_waits_and_what_is_promised_come_together(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"), generate("c"))
    cluster.start("a")
    held, loads = cluster.board.waiting(32)
    assert [job.id for job in held] == ["b", "c"]
    assert loads == cluster.board.loads()
    assert loads[POOL].in_flight == 1
    held, _ = cluster.board.waiting(1)
    assert [job.id for job in held] == ["b"]


def test_however_many_sets_a_class_has_each_is_shown_in_turn(cluster: Cluster) -> None:
    ids = [f"job-{number}" for number in range(300)]
    for job in ids:
        cluster.accept(generate(job, model=job))
    cluster.accept(generate("last", **{"class": "background"}))
    seen: set[str] = set()
    for _ in range(3):
        shown = [job.id for job in cluster.board.held(32)]
        assert len(shown) <= 257
        assert "last" in shown
        seen.update(shown)
    assert seen == {*ids, "last"}


def test_decisions_are_kept_newest_first_and_sixteen_of_them(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    for number in range(20):
        cluster.board.note([decision("a", "wait", f"reason {chr(97 + number)}")])
    kept = cluster.board.decisions("a")
    assert [one.reason[-1] for one in kept] == list("tsrqponmlkjihgfe")
    status = cluster.board.status("a")
    assert status is not None
    assert status.why == "reason t"


def test_a_decision_that_says_nothing_new_is_not_kept_twice(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    for seconds in (3.2, 3.1, 2.9):
        cluster.board.note([decision("a", "wait", f"cpu is free in {seconds} s")])
    assert len(cluster.board.decisions("a")) == 1
    cluster.lease("a")
    cluster.board.hand_back("a", "token-a")
    cluster.board.note([decision("a", "wait", "cpu is free in 2.7 s")])
    assert [one.action for one in cluster.board.decisions("a")] == ["wait", "lease", "wait"]


def test_nothing_is_noted_about_a_job_that_does_not_wait(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.board.cancel("a")
    cluster.board.note([decision("a", "wait"), decision("b", "wait")])
    assert cluster.board.decisions("a") == []
    assert cluster.board.decisions("b") == []


def test_a_lease_that_nobody_claimed_is_held_again_without_a_word(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"))
    cluster.lease("a")
    assert cluster.lose() == ["a"]
    assert cluster.held() == ["a", "b"]
    status = cluster.board.status("a")
    assert status is not None
    assert (status.attempt, status.crashes, status.pool) == (0, 0, None)
    assert cluster.board.loads() == {}
    assert cluster.board.claim("a", "token-a", POOL, 1) == Refusal(reason="stale")


def test_a_run_whose_lease_is_renewed_is_left_alone(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    cluster.board.reap(cluster.role)
    for _ in range(4):
        cluster.world.pass_time(350)
        cluster.refresh()
        cluster.board.report(POOL, [StepReport(job="a", token="token-a", text="x", tokens=(1,))])
        assert cluster.board.reap(cluster.role) == []
    assert cluster.state("a") is JobState.RUNNING


@pytest.mark.parametrize("gap_s", [2000, -3600])
def test_after_a_gap_or_a_backward_clock_every_lease_is_extended_once(
    cluster: Cluster, gap_s: float
) -> None:
    cluster.accept(generate("a"), generate("b"))
    cluster.start("a")
    cluster.lease("b")
    cluster.board.reap(cluster.role)
    cluster.world.pass_time(gap_s)
    cluster.role = cluster.take_role()
    assert cluster.board.reap(cluster.role) == []
    assert cluster.board.reap(cluster.role) == []
    assert cluster.state("a") is JobState.RUNNING
    assert set(cluster.lose()) == {"a", "b"}


def test_a_held_job_that_cannot_be_placed_fails_with_its_reason(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"))
    error = JobError(code="unplaceable", message="no pool has the memory", allowed="less")
    told = decision("a", "unplaceable", "no pool has room")
    assert cluster.board.fail("a", error, told) is True
    assert cluster.board.decisions("a") == [told]
    assert cluster.board.fail("a", error) is False
    result = cluster.board.result("a")
    assert result is not None
    assert (result.state, result.error) == (JobState.FAILED, error)
    assert result.times.held_ms == result.times.total_ms
    cluster.lease("b")
    assert cluster.board.fail("b", error) is False


def _woken(cluster: Cluster) -> bool:
    return cluster.board.wait_for_work(0.01)


def test_the_pump_is_woken_by_what_changes_its_view(cluster: Cluster) -> None:
    assert _woken(cluster)
    assert not _woken(cluster)
    board = cluster.board
    cluster.accept(generate("a"), generate("b"))
    assert _woken(cluster)
    assert not _woken(cluster)
    board.publish(snapshot(in_flight=1))
    assert not _woken(cluster)
    for new in ({"slots": 8}, {"pressure": Pressure.SOFT}, {"models": ("y",)}):
        board.publish(snapshot(**new))
        assert _woken(cluster)
    board.register(ECHO)
    assert _woken(cluster)
    board.register(ECHO)
    assert not _woken(cluster)
    cluster.start("a")
    cluster.finish("a")
    assert _woken(cluster)
    cluster.start("b")
    board.hand_back("b", "token-b")
    assert _woken(cluster)


def test_a_waiting_pump_is_woken_at_once(cluster: Cluster) -> None:
    while _woken(cluster):
        pass
    found: list[bool] = []
    waiting = threading.Thread(target=lambda: found.append(cluster.board.wait_for_work(4)))
    waiting.start()
    cluster.accept(generate("a"))
    waiting.join()
    assert found == [True]


def test_a_training_slice_is_held_where_its_checkpoint_can_be_read(cluster: Cluster) -> None:
    cluster.accept(train("t"))
    cluster.start("t")
    checkpoint = Checkpoint(name="step-1", storage="disk-1", step=1)
    assert cluster.board.yield_slice("t", "token-t", checkpoint, ECHO, 2.5)
    (job,) = cluster.board.held(32)
    assert (job.storage, job.order) == ("disk-1", 2.5)


def test_a_memory_guard_that_sees_room_says_nothing(world: World) -> None:
    assert world.board().guard_memory() is None


def test_what_the_router_tells_is_kept_for_a_while(cluster: Cluster) -> None:
    detail = RouterDetail(
        router="router@a", profile="response_first", leased_per_s=5.0, retry_s=7.5, runs=3
    )
    assert cluster.board.told() is None
    cluster.board.tell(detail)
    assert cluster.board.told() == detail
    cluster.world.pass_time(TOLD_MS / 1000 + 1)
    assert cluster.board.told() is None


def test_a_producer_that_finds_no_room_hears_when_to_try_again(cluster: Cluster) -> None:
    board = cluster.world.board(held_limit=1)
    board.accept(generate("a"))
    with pytest.raises(Overloaded) as refused:
        board.accept(generate("b"))
    assert refused.value.retry_after_s == RETRY_S
    board.tell(RouterDetail(router="r", profile="response_first", leased_per_s=5.0, retry_s=7.5))
    with pytest.raises(Overloaded) as refused:
        board.accept(generate("b"))
    assert refused.value.retry_after_s == 7.5
    assert "about 8 s" in str(refused.value)


def test_a_profile_stays_until_it_is_changed(cluster: Cluster) -> None:
    assert cluster.board.profile() is ProfileName.RESPONSE_FIRST
    cluster.board.set_profile(ProfileName.TRAINING_FIRST)
    assert cluster.board.profile() is ProfileName.TRAINING_FIRST


def test_weights_of_labels_stay_until_they_are_changed_and_are_bounded(cluster: Cluster) -> None:
    board = cluster.board
    assert board.weights() == {}
    assert board.set_weight("chat", 2.5)
    assert board.set_weight("crawl", 0.25)
    assert board.weights() == {"chat": 2.5, "crawl": 0.25}
    assert board.set_weight("chat", 1)
    assert board.weights() == {"crawl": 0.25}
    for number in range(WEIGHTS_KEPT - 1):
        assert board.set_weight(f"label-{number}", 2)
    assert not board.set_weight("one-more", 2)
    assert board.set_weight("crawl", 3)
    assert len(board.weights()) == WEIGHTS_KEPT
