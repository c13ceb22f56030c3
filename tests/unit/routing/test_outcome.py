"""What Celery is told of a job's end."""

import json

import pytest

from noidle.results import JobError, JobResult, JobState
from routing.outcome import celery_outcome, failure


def result(state: JobState, error: JobError | None = None) -> JobResult:
    return JobResult(id="a", state=state, error=error)


def test_a_result_stands_for_itself() -> None:
    assert celery_outcome(result(JobState.DONE)) == ("SUCCESS", "")


@pytest.mark.parametrize(("code", "name"), [("engine", "JobFailed"), ("invalid", "InvalidJob")])
def test_a_failure_can_be_raised_again_from_its_message(code: str, name: str) -> None:
    status, value = celery_outcome(result(JobState.FAILED, JobError(code=code, message='a "b"')))
    assert status == "FAILURE"
    assert json.loads(value) == {
        "exc_type": name,
        "exc_message": ['a "b"'],
        "exc_module": "noidle.errors",
    }


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.EXPIRED])
def test_what_did_not_run_to_its_end_is_revoked(state: JobState) -> None:
    status, value = celery_outcome(result(state))
    assert status == "REVOKED"
    assert json.loads(value)["exc_type"] == "TaskRevokedError"


def test_a_failure_without_a_reason_says_so() -> None:
    assert failure(result(JobState.FAILED)) == "failed without saying why"
    assert failure(result(JobState.DONE)) == ""


def test_a_job_that_goes_on_has_no_outcome() -> None:
    with pytest.raises(ValueError, match="allowed is a final state"):
        celery_outcome(result(JobState.RUNNING))
