"""What becomes of jobs whose deadline passes, wherever they are then."""

import pytest

from noidle.results import JobResult, JobState, StreamEvent
from noidle.snapshot import ModelInfo
from routing.board import Checkpoint, PoolLoad, Refusal, StepReport, Verdict
from tests.contract.board_world import POOL, Cluster, generate, lease_of, train
from tests.contract.test_board_preemption import preempt

PASSED = "its deadline, 200 s after it was accepted, passed before it could end"


def report(cluster: Cluster, job: str, **fields: object) -> Verdict:
    step = StepReport(job=job, token=f"token-{job}", **fields)  # type: ignore[arg-type]  # a step's
    return cluster.board.report(POOL, [step])[job]


def overdue(cluster: Cluster, *started: str) -> None:
    """Those that started run on past their deadline."""
    cluster.accept(*(generate(job, deadline_s=200) for job in started))
    for job in started:
        cluster.start(job)
        assert report(cluster, job, text="x", tokens=(1,)) is Verdict.GO_ON
    cluster.world.pass_time(250)
    cluster.refresh()


def reason(cluster: Cluster, job: str) -> str:
    result = cluster.board.result(job)
    assert result is not None
    assert result.error is not None
    assert (result.state, result.error.code) == (JobState.FAILED, "deadline")
    return result.error.message


def test_a_run_hears_at_its_next_step_that_its_deadline_passed(cluster: Cluster) -> None:
    overdue(cluster, "a")
    cluster.accept(generate("b"))
    cluster.start("b")
    steps = [StepReport(job=job, token=f"token-{job}", text="y") for job in "ab"]
    assert cluster.board.report(POOL, steps) == {"a": Verdict.OVERDUE, "b": Verdict.GO_ON}
    assert cluster.state("a") is JobState.RUNNING


def test_what_it_had_emitted_stays_in_its_result_and_on_its_stream(cluster: Cluster) -> None:
    overdue(cluster, "a")
    error = {"code": "deadline", "message": "too late"}
    fields = {"state": JobState.FAILED, "error": error, "text": "xyz", "tokens": (1, 2)}
    assert cluster.finish("a", **fields)
    result = cluster.board.result("a")
    assert isinstance(result, JobResult)
    assert (result.text, result.tokens, reason(cluster, "a")) == ("xyz", (1, 2), "too late")
    assert cluster.world.events("a") == [
        StreamEvent(text="x", tokens=(1,)),
        StreamEvent(text="yz", tokens=(2,)),
        StreamEvent(end=JobState.FAILED),
    ]
    assert cluster.board.loads() == {}
    status = cluster.board.status("a")
    assert status is not None
    assert status.why == "too late"


def test_a_run_that_is_done_before_it_hears_of_it_is_done(cluster: Cluster) -> None:
    overdue(cluster, "a")
    assert cluster.finish("a")
    assert cluster.state("a") is JobState.DONE


def test_to_be_cancelled_comes_before_to_be_late_and_that_before_making_room(
    cluster: Cluster,
) -> None:
    overdue(cluster, "a", "b")
    cluster.accept(generate("urgent", **{"class": "interactive"}))
    assert preempt(cluster, "a", for_job="urgent")
    assert report(cluster, "a") is Verdict.OVERDUE
    cluster.board.cancel("b")
    assert report(cluster, "b") is Verdict.CANCELLED


def test_what_waits_past_its_deadline_fails_also_where_nobody_looks_at_it(
    cluster: Cluster,
) -> None:
    cluster.accept(generate("first"), *(generate(job, deadline_s=200) for job in "abc"))
    cluster.world.pass_time(250)
    assert [job.id for job in cluster.board.held(1)] == ["first"]
    assert [reason(cluster, job) for job in "abc"] == [PASSED] * 3
    assert cluster.held() == ["first"]


@pytest.mark.parametrize("looks", [True, False], ids=["a_look_comes_first", "the_claim_does"])
def test_a_lease_that_is_claimed_too_late_is_none(cluster: Cluster, looks: bool) -> None:
    cluster.accept(generate("a", deadline_s=200))
    cluster.lease("a")
    cluster.world.pass_time(250)
    cluster.refresh()
    if looks:
        cluster.held()
        assert cluster.board.loads().get(POOL, PoolLoad()) == PoolLoad()
    assert cluster.board.claim("a", "token-a", POOL, 1) == Refusal(reason="stale")
    assert reason(cluster, "a") == PASSED
    assert cluster.board.loads() == {}


def test_a_run_that_comes_back_too_late_is_not_leased_again(cluster: Cluster) -> None:
    overdue(cluster, "a")
    # a look while it runs leaves it alone
    cluster.held()
    assert cluster.board.hand_back("a", "token-a")
    cluster.world.pass_time(801)
    cluster.refresh()
    assert cluster.held() == []
    assert reason(cluster, "a") == PASSED


def test_a_slice_that_ends_too_late_is_the_last(cluster: Cluster) -> None:
    cluster.accept(train("t", deadline_s=200))
    cluster.start("t")
    cluster.world.pass_time(250)
    cluster.refresh()
    assert report(cluster, "t", step=7) is Verdict.OVERDUE
    kept = Checkpoint(name="step-7", storage="disk", step=7)
    model = ModelInfo(name="mini", revision="step-7", storage="disk", context=100)
    assert cluster.board.yield_slice("t", "token-t", kept, model, 1.0)
    assert cluster.held() == []
    assert reason(cluster, "t") == PASSED
    assert cluster.board.models()["mini"].revision == "step-7"


def test_an_id_that_was_late_may_be_sent_again_with_more_time(cluster: Cluster) -> None:
    cluster.accept(generate("a", deadline_s=200))
    cluster.world.pass_time(250)
    cluster.refresh()
    assert cluster.held() == []
    cluster.accept(generate("a", deadline_s=900))
    assert cluster.board.lease(cluster.role, [lease_of("a", "again")]) == [True]
