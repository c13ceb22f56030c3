"""The pools' side of the board: claim, report, finish, yield, hand back."""

import pytest

from noidle.errors import InvalidJob
from noidle.results import JobError, JobResult, JobState, JobTimes, StreamEvent
from noidle.snapshot import ModelInfo
from routing.board import Checkpoint, Claim, Refusal, StepReport, Verdict
from routing.bounds import RUNS_KEPT
from tests.contract.board_world import ECHO, POOL, Cluster, generate, snapshot, train

OTHER = "gpu@there"
MINI = ModelInfo(name="mini", revision="step-2", storage="disk-1", context=64)


def step(job_id: str, text: str = "", token: str = "", **fields: object) -> StepReport:
    tokens = tuple(range(len(text.split())))
    data = {"token": token or f"token-{job_id}", "text": text, "tokens": tokens}
    return StepReport(job=job_id, **{**data, **fields})


def report(cluster: Cluster, *steps: StepReport) -> dict[str, Verdict]:
    return cluster.board.report(POOL, list(steps))


def test_a_token_claims_once(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    claim = cluster.start("a")
    assert (claim.job, claim.attempt, claim.checkpoint) == (generate("a"), 1, None)
    assert claim.accepted_ms <= claim.leased_ms <= (claim.claimed_ms or 0)
    assert cluster.board.claim("a", "token-a", POOL, 1) == Refusal(reason="stale")
    assert cluster.board.claim("a", "another", POOL, 1) == Refusal(reason="stale")
    assert cluster.state("a") is JobState.RUNNING


def test_a_message_that_reached_the_wrong_pool_leaves_the_lease_alone(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.lease("a")
    refusal = Refusal(reason="elsewhere", pool=POOL)
    assert cluster.board.claim("a", "token-a", OTHER, 2) == refusal
    assert isinstance(cluster.board.claim("a", "token-a", POOL, 1), Claim)


def test_the_token_of_a_former_lease_claims_nothing(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.lease("a", "old")
    cluster.board.cancel("a")
    cluster.accept(generate("a"))
    cluster.lease("a", "new")
    assert cluster.board.claim("a", "old", POOL, 1) == Refusal(reason="stale")


def test_what_runs_emit_is_on_their_streams_and_in_their_status(cluster: Cluster) -> None:
    cluster.accept(generate("a", max_tokens=9), generate("b"))
    cluster.start("a")
    cluster.start("b")
    verdicts = report(cluster, step("a", "one two "), step("b"), step("c", "x"))
    assert verdicts == {"a": Verdict.GO_ON, "b": Verdict.GO_ON, "c": Verdict.LOST}
    assert report(cluster, step("a", "three")) == {"a": Verdict.GO_ON}
    assert cluster.world.events("a") == [
        StreamEvent(text="one two ", tokens=(0, 1)),
        StreamEvent(text="three", tokens=(0,)),
    ]
    assert cluster.world.events("b") == []
    status = cluster.board.status("a")
    assert status is not None
    assert (status.progress, status.goal, status.pool) == (3, 9, POOL)


def test_a_report_under_another_token_or_pool_changes_nothing(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    assert report(cluster, step("a", "x", token="old")) == {"a": Verdict.LOST}
    assert cluster.board.report(OTHER, [step("a", "x")]) == {"a": Verdict.LOST}
    assert cluster.world.events("a") == []


def test_training_progress_is_on_the_stream(cluster: Cluster) -> None:
    cluster.accept(train("t"))
    cluster.start("t")
    report(cluster, step("t", step=3, goal=100, loss=2.5, tokens_per_s=900.0))
    assert cluster.world.events("t") == [
        StreamEvent(step=3, goal=100, loss=2.5, tokens_per_s=900.0)
    ]
    status = cluster.board.status("t")
    assert status is not None
    assert (status.progress, status.goal, status.loss) == (3, 100, 2.5)


def test_a_next_attempt_goes_on_behind_what_the_reader_has(cluster: Cluster) -> None:
    cluster.accept(generate("a", max_tokens=9))
    cluster.start("a")
    report(cluster, step("a", "日本 ", revision="r1"))
    report(cluster, step("a", "the rest"))
    cluster.board.hand_back("a", "token-a")
    assert cluster.board.held(32)[0].max_tokens == 6
    claim = cluster.start("a", "second")
    assert (claim.attempt, claim.text, claim.tokens) == (2, "日本 the rest", (0, 0, 1))
    assert claim.revision == "r1"
    assert claim.first_token_ms is not None
    report(cluster, step("a", " goes on", token="second"))
    whole = "日本 the rest goes on"
    assert cluster.finish("a", "second", text=whole, tokens=(0, 0, 1, 0, 1))
    events = cluster.world.events("a")
    assert "".join(event.text or "" for event in events) == whole
    assert [event.end for event in events][-2:] == [None, JobState.DONE]


def test_finish_keeps_the_result_and_adds_the_boards_times(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.world.pass_time(100)
    cluster.start("a")
    cluster.world.pass_time(100)
    report(cluster, step("a", "one two"))
    cluster.world.pass_time(100)
    given = JobResult(
        id="a",
        kind="generate",
        state=JobState.DONE,
        text="one two",
        tokens=(0, 1),
        logprobs=(-0.123456789012345, -1e-300),
        model="echo",
        pool=POOL,
        attempt=1,
        seed=2**63 - 1,
        times=JobTimes(
            tokenize_ms=0.5, prefill_ms=1.5, decode_ms=2.25, stream_ms=0.25, tpot_ms=1 / 3
        ),
    )
    assert cluster.board.finish("a", "token-a", given) is True
    result = cluster.board.result("a")
    assert result is not None
    assert result.model_copy(update={"times": given.times}) == given
    times = result.times
    assert (times.prefill_ms, times.decode_ms, times.tpot_ms) == (1.5, 2.25, 1 / 3)
    assert (times.tokenize_ms, times.stream_ms) == (0.5, 0.25)
    assert 100_000 <= (times.held_ms or 0) < 190_000
    assert 200_000 <= (times.ttft_ms or 0) < 290_000
    assert 300_000 <= (times.total_ms or 0) < 390_000
    assert 0 <= (times.queued_ms or 0) < 90_000


def test_held_time_adds_up_over_all_rounds(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    for round_ in range(3):
        cluster.world.pass_time(100)
        cluster.refresh()
        cluster.start("a", f"round-{round_}")
        cluster.world.pass_time(200)
        cluster.board.hand_back("a", f"round-{round_}")
    cluster.refresh()
    assert 300_000 <= cluster.start("a").held_ms < 390_000


def test_text_that_was_never_reported_reaches_the_stream_with_the_result(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"))
    cluster.start("a")
    cluster.start("b")
    report(cluster, step("a", "é one"))
    assert cluster.finish("a", text="é one two", tokens=(0, 1, 2))
    assert cluster.finish("b", text="short", tokens=(7,))
    end = StreamEvent(end=JobState.DONE)
    assert cluster.world.events("a")[1:] == [StreamEvent(text=" two", tokens=(2,)), end]
    assert cluster.world.events("b") == [StreamEvent(text="short", tokens=(7,)), end]
    result = cluster.board.result("b")
    assert result is not None
    assert result.times.ttft_ms is not None


def test_only_the_holder_of_the_token_finishes_and_its_repeat_is_told_the_same(
    cluster: Cluster,
) -> None:
    cluster.accept(generate("a"))
    cluster.start("a", "old")
    cluster.board.hand_back("a", "old")
    cluster.start("a", "new")
    assert cluster.finish("a", "old", text="wrong") is False
    assert cluster.finish("a", "new", text="right") is True
    assert cluster.finish("a", "new", text="right") is True
    assert cluster.finish("a", "old", text="wrong") is False
    result = cluster.board.result("a")
    assert result is not None
    assert result.text == "right"
    assert [event.end for event in cluster.world.events("a")].count(JobState.DONE) == 1


def test_a_lease_that_was_not_claimed_cannot_finish(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.lease("a")
    assert cluster.finish("a") is False
    assert cluster.state("a") is JobState.LEASED


def test_a_failed_run_keeps_its_reason(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    error = JobError(code="engine", message="out of memory")
    assert cluster.finish("a", state=JobState.FAILED, error=error)
    result, status = cluster.board.result("a"), cluster.board.status("a")
    assert result is not None
    assert status is not None
    assert (result.error, status.why) == (error, "out of memory")


def test_slices_take_turns_by_the_service_they_received(cluster: Cluster) -> None:
    cluster.accept(train("s"), train("t"))
    cluster.start("s")
    checkpoint = Checkpoint(name="step-2", storage="disk-1", step=2)
    assert cluster.board.yield_slice("s", "token-s", checkpoint, MINI, 2.0)
    assert cluster.board.models()["mini"] == MINI
    orders = {job.id: job.order for job in cluster.board.held(32)}
    assert orders["t"] < orders["s"]
    claim = cluster.start("s", "second")
    assert claim.checkpoint == checkpoint
    later = Checkpoint(name="step-4", storage="disk-1", step=4)
    assert cluster.board.yield_slice("s", "second", later, MINI, 1.5)
    orders = {job.id: job.order for job in cluster.board.held(32)}
    assert orders["s"] == 3.5
    status = cluster.board.status("s")
    assert status is not None
    assert status.progress == 4


def test_a_slice_yields_once_and_under_its_token_only(cluster: Cluster) -> None:
    cluster.accept(train("t"))
    cluster.start("t")
    first = Checkpoint(name="step-2", storage="disk-1", step=2)
    assert cluster.board.yield_slice("t", "wrong", first, MINI, 2.0) is False
    assert cluster.board.yield_slice("t", "token-t", first, MINI, 2.0) is True
    assert cluster.board.yield_slice("t", "token-t", first, MINI, 2.0) is True
    assert cluster.board.held(32)[0].order == 2.0


def test_a_training_cancelled_in_its_slice_ends_there_with_its_checkpoint_known(
    cluster: Cluster,
) -> None:
    cluster.accept(train("t"))
    cluster.start("t")
    cluster.board.cancel("t")
    checkpoint = Checkpoint(name="step-2", storage="disk-1", step=2)
    assert cluster.board.yield_slice("t", "token-t", checkpoint, MINI, 2.0) is True
    assert cluster.state("t") is JobState.CANCELLED
    assert cluster.board.models()["mini"] == MINI
    assert cluster.held() == []


def test_a_job_handed_back_waits_at_its_old_place(cluster: Cluster) -> None:
    cluster.accept(generate("a"), generate("b"), generate("c"))
    cluster.start("a")
    cluster.start("b")
    cluster.board.hand_back("b", "token-b")
    cluster.board.hand_back("a", "token-a", crashed=True)
    assert cluster.held() == ["a", "b", "c"]
    assert cluster.board.hand_back("a", "token-a") is True
    assert cluster.board.hand_back("c", "token-a") is False
    assert cluster.board.loads() == {}


def test_a_draining_pool_gives_back_what_it_has_not_claimed(cluster: Cluster) -> None:
    cluster.accept(*map(generate, "abc"))
    cluster.start("a")
    cluster.lease("b")
    cluster.lease("c")
    assert set(cluster.board.release_unclaimed(POOL)) == {"b", "c"}
    assert cluster.held() == ["b", "c"]
    assert cluster.state("a") is JobState.RUNNING


def test_a_model_of_a_present_storage_is_not_replaced_by_another_storages(cluster: Cluster) -> None:
    board = cluster.board
    board.publish(snapshot(storage="disk-1"))
    board.register(MINI)
    board.register(MINI.model_copy(update={"revision": "step-3"}))
    assert board.models()["mini"].revision == "step-3"
    board.register(MINI.model_copy(update={"revision": "old", "storage": "disk-2"}))
    assert board.models()["mini"].revision == "step-3"
    board.leave(POOL)
    board.register(MINI.model_copy(update={"revision": "old", "storage": "disk-2"}))
    assert board.models()["mini"].revision == "old"
    board.register(ECHO)
    assert set(board.models()) == {"mini", "echo"}


def test_a_model_that_was_removed_is_forgotten_where_it_lay(cluster: Cluster) -> None:
    board = cluster.board
    board.register(MINI)
    board.register(ECHO)
    assert not board.forget("mini", "another disk")
    assert not board.forget("echo", MINI.storage or "")
    assert not board.forget("nobody", MINI.storage or "")
    assert set(board.models()) == {"mini", "echo"}
    assert board.forget("mini", MINI.storage or "")
    assert set(board.models()) == {"echo"}
    with pytest.raises(InvalidJob, match="mini"):
        cluster.accept(generate("a", model="mini"))


def test_a_model_that_is_only_planned_is_not_forgotten(cluster: Cluster) -> None:
    cluster.accept(train("t"))
    assert not cluster.board.forget("mini", "")
    assert "mini" in cluster.board.models()


@pytest.mark.parametrize("size", [0, 1, 200_000])
def test_prompts_of_any_size_come_back_as_they_were(cluster: Cluster, size: int) -> None:
    prompt = 'ä\x00"\\\u2028' + "日" * size
    cluster.accept(generate("a", prompt=prompt, stop=("/", "]]")))
    claim = cluster.start("a")
    assert claim.job == generate("a", prompt=prompt, stop=("/", "]]"))
    report(cluster, step("a", prompt[:1000]))
    assert cluster.finish("a", text=prompt)
    result = cluster.board.result("a")
    assert result is not None
    assert result.text == prompt
    assert "".join(event.text or "" for event in cluster.world.events("a")) == prompt


def test_what_a_run_took_is_told_once(cluster: Cluster) -> None:
    cluster.accept(generate("a", max_tokens=7, label="north"))
    claim = cluster.start("a")
    report(cluster, step("a", "one two"))
    done = JobResult(id="a", state=JobState.DONE, text="one two three", tokens=(0, 1, 2))
    assert cluster.board.finish("a", "token-a", done)
    (run,) = cluster.board.runs()
    assert (run.job, run.kind, run.model, run.label) == ("a", "generate", "echo", "north")
    assert (run.tokens, run.max_tokens) == (3, 7)
    assert run.first_ms is not None
    assert claim.leased_ms <= run.first_ms <= run.ended_ms
    assert cluster.board.runs() == []


def test_a_run_without_a_result_teaches_nothing(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a")
    failed = JobResult(id="a", state=JobState.FAILED, error=JobError(code="engine", message="x"))
    assert cluster.board.finish("a", "token-a", failed)
    assert cluster.board.runs() == []


def test_of_many_runs_the_last_are_kept(cluster: Cluster) -> None:
    for number in range(RUNS_KEPT + 3):
        job_id = f"job-{number}"
        cluster.accept(generate(job_id))
        cluster.start(job_id)
        done = JobResult(id=job_id, state=JobState.DONE, text="", tokens=())
        assert cluster.board.finish(job_id, f"token-{job_id}", done)
    runs = cluster.board.runs()
    assert [run.job for run in (runs[0], runs[-1])] == ["job-3", f"job-{RUNS_KEPT + 2}"]
