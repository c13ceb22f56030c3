"""The result of a run."""

from engines.protocol import RunResult
from noidle.jobs import parse_job
from noidle.results import JobError, JobState, TrainReport
from routing.board import Claim
from tests.unit.workers.world import PLACE
from workers import ending


def claim(**fields):
    data = {"kind": "generate", "id": "j", "model": "m", "prompt": "p", **fields}
    job = parse_job({name: value for name, value in data.items() if value is not None})
    return Claim(
        job=job,
        seed=3,
        attempt=2,
        text="before ",
        tokens=(1, 2),
        revision="r",
        checkpoint=None,
        accepted_ms=0,
        held_ms=0.0,
        leased_ms=0,
        first_token_ms=None,
    )


def test_text_and_tokens_of_former_attempts_come_first():
    said = RunResult(text="after", tokens=(3,), finish_reason="stop", revision="r", load_ms=4.0)
    result = ending.done(claim(), PLACE, said)
    assert (result.text, result.tokens) == ("before after", (1, 2, 3))
    assert (result.state, result.finish_reason, result.revision) == ("done", "stop", "r")
    assert (result.id, result.kind, result.model) == ("j", "generate", "m")
    assert (result.pool, result.host, result.device, result.pid) == ("cpu@here", "here", "d", 77)
    assert (result.engine, result.stand_in) == ("cpu", False)
    assert (result.attempt, result.seed, result.times.load_ms) == (2, 3, 4.0)


def test_all_that_an_engine_tells_of_a_run_is_in_its_result():
    names = RunResult.model_fields.keys() - {"text", "tokens", "train"}
    numbers = {name: float(place) for place, name in enumerate(sorted(names))}
    numbers |= {"prompt_tokens": 9, "prefix_tokens": 8, "logprobs": (-0.5, -2.0)}
    numbers |= {"finish_reason": "eos", "model": "other", "revision": "r"}
    result = ending.done(claim(), PLACE, RunResult(**{name: numbers[name] for name in names}))
    for name in names:
        place = result.times if name.endswith("_ms") else result
        assert getattr(place, name) == numbers[name], name


def test_what_a_kind_of_job_has_not_is_absent():
    result = ending.done(claim(), PLACE, RunResult(train=TrainReport(steps=5)))
    assert (result.text, result.tokens, result.train.steps) == (None, None, 5)


def test_a_run_that_was_too_late_keeps_what_it_emitted_and_says_how_far_it_was():
    late = ending.overdue(claim(deadline_s=2.5, max_tokens=9), PLACE, "after", [3])
    assert (late.state, late.error.code) == (JobState.FAILED, "deadline")
    assert (late.text, late.tokens) == ("before after", (1, 2, 3))
    assert late.error.message == (
        "its deadline, 2.5 s after it was accepted, passed while it ran: it had 3 of 9 tokens"
    )


def test_a_training_that_was_too_late_has_no_text():
    late = ending.overdue(claim(kind="train", prompt=None, text="t", deadline_s=9), PLACE, "", [])
    assert (late.text, late.tokens, late.error.code) == (None, None, "deadline")


def test_a_failed_run_keeps_its_error_and_a_cancelled_one_has_none():
    error = JobError(code="engine", message="no")
    assert ending.failed(claim(), PLACE, error).error == error
    assert ending.failed(claim(), PLACE, error).state is JobState.FAILED
    assert ending.cancelled(claim(), PLACE).state is JobState.CANCELLED
    assert ending.cancelled(claim(), PLACE).error is None
