"""Taking leases back: what a preemption does to the run, to the job, and what it may not do."""

from typing import Any

import pytest

from noidle.results import JobResult, JobState
from noidle.snapshot import ModelInfo
from routing.board import Checkpoint, Claim, StepReport, Verdict
from routing.running import Preemption, RunningJob
from tests.contract.board_world import POOL, Cluster, decision, generate, train


def wish(job: str, for_job: str | None = "urgent", **fields: Any) -> Preemption:
    values = {"token": f"token-{job}", "decision": decision(job, "preempt", "makes room")}
    return Preemption(job=job, for_job=for_job, **(values | fields))


def preempt(cluster: Cluster, job: str, for_job: str | None = "urgent", **fields: Any) -> bool:
    return cluster.board.preempt(cluster.role, [wish(job, for_job, **fields)])[0]


def report(cluster: Cluster, job: str, **fields: Any) -> Verdict:
    return cluster.board.report(POOL, [StepReport(job=job, token=f"token-{job}", **fields)])[job]


def running(cluster: Cluster) -> dict[str, RunningJob]:
    return {one.id: one for one in cluster.board.running([POOL, "nowhere"])}


def yields(cluster: Cluster, job: str, step: int, token: str = "") -> bool:
    checkpoint = Checkpoint(name=f"step-{step}", storage="disk", step=step)
    model = ModelInfo(name="mini", revision=f"step-{step}", storage="disk")
    return cluster.board.yield_slice(job, token or f"token-{job}", checkpoint, model, 1.0)


@pytest.fixture
def busy(cluster: Cluster) -> Cluster:
    """A batch run goes on, an interactive job is held."""
    cluster.accept(generate("long", **{"class": "batch", "max_tokens": 50}))
    cluster.start("long", kv_tokens=64, memory_bytes=7)
    cluster.accept(generate("urgent", **{"class": "interactive"}))
    return cluster


def test_what_runs_is_shown_with_all_that_a_preemption_must_know(busy: Cluster) -> None:
    report(busy, "long", text="a b ", tokens=(1, 2))
    busy.accept(generate("fresh"))
    busy.lease("fresh")
    shown = running(busy)
    long = shown["long"]
    assert (long.pool, long.token, long.job_class) == (POOL, "token-long", "batch")
    assert (long.kv_tokens, long.memory_bytes, long.progress, long.goal) == (64, 7, 2, 50)
    assert long.claimed_ms is not None
    assert (long.preemptions, long.leaving) == (0, False)
    assert shown["fresh"].claimed_ms is None


def test_a_run_hears_of_its_preemption_in_the_answer_to_its_next_report(busy: Cluster) -> None:
    assert report(busy, "long", text="a ", tokens=(1,)) is Verdict.GO_ON
    assert preempt(busy, "long")
    assert running(busy)["long"].leaving
    assert report(busy, "long", text="b ", tokens=(2,)) is Verdict.PAUSE
    assert busy.state("long") is JobState.RUNNING


def test_a_run_whose_memory_is_needed_hears_that_too(busy: Cluster) -> None:
    assert preempt(busy, "long")
    assert preempt(busy, "long", free_memory=True)
    assert report(busy, "long") is Verdict.FREE
    assert preempt(busy, "long")
    assert report(busy, "long") is Verdict.FREE


def test_what_is_handed_back_goes_on_behind_its_tokens_and_counts_as_no_crash(
    busy: Cluster,
) -> None:
    report(busy, "long", text="a ", tokens=(1,))
    preempt(busy, "long")
    assert busy.board.hand_back("long", "token-long")
    assert busy.state("long") is JobState.HELD
    claim = busy.start("long", "again")
    assert (claim.text, claim.tokens, claim.attempt) == ("a ", (1,), 2)
    status = busy.board.status("long")
    assert status is not None
    assert (status.crashes, status.preemptions) == (0, 1)
    assert busy.board.report(POOL, [StepReport(job="long", token="again")]) == {
        "long": Verdict.GO_ON
    }


def test_what_no_pool_has_claimed_is_held_again_at_once(busy: Cluster) -> None:
    busy.accept(generate("fresh", **{"class": "batch"}))
    busy.lease("fresh")
    assert preempt(busy, "fresh")
    assert busy.state("fresh") is JobState.HELD
    assert "fresh" in busy.held()
    assert not isinstance(busy.board.claim("fresh", "token-fresh", POOL, 1), Claim)
    assert busy.board.loads()[POOL].in_flight == 1


def test_a_job_that_ends_at_the_same_moment_just_ends(busy: Cluster) -> None:
    assert preempt(busy, "long")
    assert busy.finish("long", text="a ", tokens=(1,))
    assert busy.state("long") is JobState.DONE
    assert not preempt(busy, "long")


def test_a_job_that_is_cancelled_meanwhile_ends_cancelled(busy: Cluster) -> None:
    preempt(busy, "long")
    busy.board.cancel("long")
    assert report(busy, "long") is Verdict.CANCELLED
    assert not preempt(busy, "long")
    busy.board.hand_back("long", "token-long")
    assert busy.state("long") is JobState.CANCELLED


@pytest.mark.parametrize("job_class", ["batch", "background"])
def test_nothing_takes_from_what_is_as_high_or_higher(busy: Cluster, job_class: str) -> None:
    busy.accept(generate("low", **{"class": job_class}))
    assert not preempt(busy, "long", "low")
    assert report(busy, "long") is Verdict.GO_ON


def test_a_job_that_waits_no_more_takes_nothing(busy: Cluster) -> None:
    busy.board.cancel("urgent")
    assert not preempt(busy, "long")
    assert not preempt(busy, "long", "unknown")


def test_a_stale_token_and_a_stale_role_take_nothing(busy: Cluster) -> None:
    assert not preempt(busy, "long", token="other")
    former = busy.role
    busy.board.give_up_pump(former)
    busy.role = busy.take_role("router-2")
    assert busy.board.preempt(former, [wish("long")]) == [False]
    assert preempt(busy, "long")


def test_a_run_that_made_room_three_times_is_left_alone(busy: Cluster) -> None:
    token = "token-long"
    for number in range(3):
        assert preempt(busy, "long", token=token)
        # asked twice is asked once
        assert preempt(busy, "long", token=token)
        busy.board.hand_back("long", token)
        token = f"token-{number}"
        busy.start("long", token)
    assert running(busy)["long"].preemptions == 3
    assert not preempt(busy, "long", token=token)
    # memory that runs out asks nobody
    assert preempt(busy, "long", None, token=token, free_memory=True)


def test_a_whole_slice_of_training_may_be_preempted_as_often_as_the_first(cluster: Cluster) -> None:
    cluster.accept(train("t"), generate("urgent", **{"class": "interactive"}))
    for number in range(3):
        cluster.start("t", f"token-{number}")
        assert preempt(cluster, "t", token=f"token-{number}")
        assert yields(cluster, "t", number + 1, f"token-{number}")
    cluster.start("t", "whole")
    assert not preempt(cluster, "t", token="whole")
    assert yields(cluster, "t", 9, "whole")
    cluster.start("t", "after")
    assert running(cluster)["t"].preemptions == 0
    assert preempt(cluster, "t", token="after")
    status = cluster.board.status("t")
    assert status is not None
    assert status.preemptions == 4


def test_why_a_job_made_room_is_kept_for_whoever_asks(busy: Cluster) -> None:
    preempt(busy, "long")
    newest = busy.board.decisions("long")[0]
    assert (newest.action, newest.reason) == ("preempt", "makes room")


def test_the_result_says_how_often_the_job_was_tried(busy: Cluster) -> None:
    preempt(busy, "long")
    busy.board.hand_back("long", "token-long")
    busy.start("long", "again")
    done = JobResult(id="long", kind="generate", state=JobState.DONE, attempt=2)
    assert busy.board.finish("long", "again", done)
    assert busy.board.running([POOL]) == []
