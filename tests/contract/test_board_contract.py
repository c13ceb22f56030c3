"""Accept, refuse, cancel, and what can be seen of a job: the same on both boards."""

import pytest

from noidle.errors import InvalidJob, Overloaded
from noidle.results import JobError, JobState
from noidle.snapshot import ModelInfo
from routing.board import Claim, Refusal, StepReport, Verdict
from routing.envelope import Envelope
from tests.contract.board_world import ECHO, POOL, Cluster, World, generate, train


def test_a_job_is_accepted_once_per_id(cluster: Cluster) -> None:
    assert cluster.board.accept(generate("a")) is True
    assert cluster.board.accept(generate("a")) is False
    assert cluster.held() == ["a"]


def test_a_fresh_job_is_held_with_all_that_the_policy_needs(cluster: Cluster) -> None:
    before = cluster.board.now_ms()
    cluster.accept(
        generate("a", prompt="日本", max_tokens=7, engine="gpu", label="me", **{"class": "batch"})
    )
    job = cluster.board.held(32)[0]
    assert (job.kind, job.model, job.job_class, job.engine) == ("generate", "echo", "batch", "gpu")
    assert (job.label, job.prompt_bytes, job.max_tokens, job.storage) == ("me", 6, 7, None)
    assert before <= job.accepted_ms <= cluster.board.now_ms()
    assert job.held_since_ms == job.accepted_ms
    assert job.alone is False


def test_the_id_of_another_job_is_refused_by_name(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    with pytest.raises(InvalidJob, match="id = 'a'"):
        cluster.board.accept(generate("a", prompt="another"))


def test_a_done_job_is_not_run_again_and_keeps_its_result(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    cluster.finish("a", text="answer")
    assert cluster.board.accept(generate("a")) is False
    result = cluster.board.result("a")
    assert result is not None
    assert result.text == "answer"


@pytest.mark.parametrize("content", ["one two", "another prompt"])
def test_a_cancelled_id_may_be_sent_again_and_starts_afresh(cluster: Cluster, content: str) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    cluster.board.report(POOL, [StepReport(job="a", token="token-a", text="old", tokens=(1,))])
    cluster.finish("a", state=JobState.CANCELLED)
    assert cluster.board.accept(generate("a", prompt=content)) is True
    assert cluster.board.result("a") is None
    assert cluster.board.decisions("a") == []
    assert cluster.world.events("a") == []
    claim = cluster.start("a", "second")
    assert (claim.attempt, claim.text, claim.tokens) == (1, "", ())


def test_a_message_delivered_twice_does_not_run_a_cancelled_job_again(cluster: Cluster) -> None:
    message = Envelope(delivery="tag-1")
    assert cluster.board.accept(generate("a"), message) is True
    cluster.board.cancel("a")
    assert cluster.board.accept(generate("a"), message) is False
    assert cluster.state("a") is JobState.CANCELLED
    assert cluster.board.accept(generate("a"), Envelope(delivery="tag-2")) is True


def test_an_unknown_model_is_refused_with_those_that_are_known(cluster: Cluster) -> None:
    cluster.board.register(ECHO)
    cluster.board.register(ModelInfo(name="other", revision="r1"))
    with pytest.raises(InvalidJob, match="model = 'none': allowed is echo or other"):
        cluster.board.accept(generate("a", model="none"))
    assert cluster.state("a") is None


def test_before_any_pool_named_its_models_every_model_may_turn_up(cluster: Cluster) -> None:
    cluster.accept(generate("a", model="later"), train("t"), generate("b", model="much-later"))
    assert set(cluster.held()) == {"a", "t", "b"}


def test_a_model_in_training_is_known_before_its_first_checkpoint(cluster: Cluster) -> None:
    cluster.board.register(ECHO)
    cluster.accept(train("t", model="mini", shape={"context": 64}))
    assert cluster.board.models()["mini"].revision is None
    cluster.accept(generate("a", model="mini", max_tokens=64))
    with pytest.raises(InvalidJob, match="max_tokens = 65: allowed is 1 to 64"):
        cluster.board.accept(generate("b", model="mini", max_tokens=65))


def test_a_training_that_ends_without_a_checkpoint_takes_its_model_along(cluster: Cluster) -> None:
    cluster.board.register(ECHO)
    cluster.accept(train("t", model="mini"))
    cluster.board.cancel("t")
    assert "mini" not in cluster.board.models()
    with pytest.raises(InvalidJob, match="model"):
        cluster.board.accept(generate("a", model="mini"))


def test_more_tokens_than_the_context_are_refused(cluster: Cluster) -> None:
    cluster.board.register(ECHO)
    cluster.accept(generate("a", max_tokens=1000))
    with pytest.raises(InvalidJob, match="max_tokens = 1001: allowed is 1 to 1000"):
        cluster.board.accept(generate("b", max_tokens=1001))


def test_acceptance_closes_with_its_reason_but_still_knows_its_jobs(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.world.close("Redis is nearly full")
    with pytest.raises(Overloaded, match="Redis is nearly full"):
        cluster.board.accept(generate("b"))
    assert cluster.board.accept(generate("a")) is False


def test_the_held_limit_counts_jobs_that_wait_and_no_others(world: World) -> None:
    cluster = Cluster(world, world.board(held_limit=2))
    cluster.accept(generate("a"), generate("b"))
    with pytest.raises(Overloaded, match="2 jobs are held"):
        cluster.board.accept(generate("c"))
    cluster.lease("a")
    cluster.accept(generate("c"))


def test_a_seed_is_drawn_once_and_kept(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b", seed=2**63 - 1))
    drawn = cluster.start("a").seed
    assert cluster.start("b").seed == 2**63 - 1
    cluster.board.hand_back("a", "token-a")
    assert cluster.start("a", "second").seed == drawn


def test_a_refused_job_has_a_failed_result_that_names_the_field(cluster: Cluster) -> None:
    error = JobError(code="invalid", message="model = 'x': allowed is echo", field="model")
    cluster.board.refuse("a", "generate", error)
    result, status = cluster.board.result("a"), cluster.board.status("a")
    assert result is not None
    assert status is not None
    assert (result.state, result.error, result.kind) == (JobState.FAILED, error, "generate")
    assert (status.state, status.why) == (JobState.FAILED, error.message)
    assert [event.end for event in cluster.world.events("a")] == [JobState.FAILED]
    assert cluster.board.accept(generate("a")) is True


def test_a_job_of_no_kind_can_be_refused(cluster: Cluster) -> None:
    cluster.board.refuse("a", None, JobError(code="invalid", message="kind = 3"))
    result = cluster.board.result("a")
    assert result is not None
    assert result.kind is None
    assert cluster.state("a") is JobState.FAILED


def test_a_refusal_does_not_touch_a_job_that_is_known(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.board.refuse("a", "generate", JobError(code="invalid", message="no"))
    assert cluster.state("a") is JobState.HELD


def test_a_held_job_is_cancelled_at_once(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    assert cluster.board.cancel("a") is True
    assert cluster.held() == []
    assert cluster.state("a") is JobState.CANCELLED
    assert [event.end for event in cluster.world.events("a")] == [JobState.CANCELLED]
    assert cluster.board.cancel("a") is False


def test_a_revocation_that_several_workers_hear_hits_no_job_sent_again(cluster: Cluster) -> None:
    """A pool that heard of it after the router cancelled the second try of the same id."""
    cluster.accept(generate("a"))
    assert cluster.board.cancel("a", "told-1") is True
    cluster.accept(generate("a"))
    assert cluster.board.cancel("a", "told-1") is True
    assert cluster.state("a") is JobState.HELD
    assert cluster.board.cancel("a", "told-2") is True
    assert cluster.state("a") is JobState.CANCELLED
    assert cluster.board.cancel("b", "told-3") is False
    cluster.accept(generate("b"))
    assert cluster.board.cancel("b", "told-3") is True
    assert cluster.state("b") is JobState.CANCELLED


def test_a_leased_job_is_cancelled_at_once_and_frees_its_slot(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.lease("a")
    assert cluster.board.cancel("a") is True
    assert cluster.board.loads() == {}
    assert cluster.board.claim("a", "token-a", POOL, 1) == Refusal(reason="cancelled")


def test_a_running_job_learns_of_its_cancellation_at_its_next_step(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    assert cluster.board.cancel("a") is True
    assert cluster.board.cancel("a") is True
    assert cluster.state("a") is JobState.CANCELLING
    step = StepReport(job="a", token="token-a", text="x", tokens=(1,))
    assert cluster.board.report(POOL, [step]) == {"a": Verdict.CANCELLED}
    assert cluster.finish("a", state=JobState.CANCELLED)
    assert cluster.state("a") is JobState.CANCELLED


def test_a_job_that_is_done_before_it_learns_of_its_cancellation_is_done(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    cluster.board.cancel("a")
    assert cluster.finish("a", text="answer")
    assert cluster.state("a") is JobState.DONE


def test_a_cancelled_job_is_not_held_again_whatever_its_pool_does(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"), generate("c"), train("t"))
    for job in "abct":
        cluster.start(job)
        cluster.board.cancel(job)
    assert cluster.board.hand_back("a", "token-a")
    assert cluster.board.hand_back("b", "token-b", crashed=True)
    cluster.lose()
    assert {cluster.state(job) for job in "abct"} == {JobState.CANCELLED}
    assert cluster.board.loads() == {}


def test_an_unknown_job_is_unknown_everywhere(cluster: Cluster) -> None:
    board = cluster.board
    assert board.cancel("a") is False
    assert board.status("a") is None
    assert board.result("a") is None
    assert board.decisions("a") == []
    assert board.claim("a", "t", POOL, 1) == Refusal(reason="stale")
    assert board.report(POOL, [StepReport(job="a", token="t")]) == {"a": Verdict.LOST}
    assert board.hand_back("a", "t") is False
    assert cluster.finish("a") is False
    assert board.fail("a", JobError(code="unplaceable", message="no")) is False


def test_a_job_expires_if_it_has_not_started_in_time(cluster: Cluster) -> None:
    cluster.accept(generate("a", expires_s=500), generate("b"))
    cluster.world.pass_time(600)
    assert cluster.held() == ["b"]
    assert cluster.state("a") is JobState.EXPIRED
    assert cluster.board.accept(generate("a", expires_s=500)) is True


def test_an_expired_job_is_neither_leased_nor_claimed(cluster: Cluster) -> None:
    cluster.accept(generate("a", expires_s=200), generate("b", expires_s=200))
    cluster.lease("a")
    cluster.world.pass_time(250)
    cluster.refresh()
    assert cluster.lease("b") is False
    assert cluster.board.claim("a", "token-a", POOL, 1) == Refusal(reason="stale")
    assert cluster.state("a") is JobState.EXPIRED
    assert cluster.board.loads() == {}


def test_a_job_that_started_does_not_expire_any_more(cluster: Cluster) -> None:
    cluster.accept(generate("a", expires_s=200))
    cluster.start("a")
    cluster.world.pass_time(250)
    cluster.refresh()
    assert cluster.held() == []
    cluster.board.hand_back("a", "token-a")
    assert cluster.held() == ["a"]
    assert isinstance(cluster.start("a", "second"), Claim)


def test_a_record_is_gone_after_its_keeping_time(cluster: Cluster) -> None:
    cluster.accept(generate("a", keep_s=6000))
    cluster.start("a")
    cluster.finish("a", text="answer")
    cluster.world.pass_time(5900)
    assert cluster.state("a") is JobState.DONE
    cluster.world.pass_time(200)
    assert cluster.state("a") is None
    assert cluster.board.result("a") is None
    assert cluster.board.jobs(10) == []


def test_jobs_shows_those_in_pools_first_then_the_newest(cluster: Cluster) -> None:
    cluster.accept(*[generate(job) for job in "abcde"])
    cluster.start("c")
    cluster.start("a")
    cluster.finish("a")
    assert [status.id for status in cluster.board.jobs(10)] == ["c", "e", "d", "b", "a"]
    assert [status.id for status in cluster.board.jobs(2)] == ["c", "e"]
