"""What Celery is told of a job's end. Owns status and value of the result backend's entry, as
Celery's own JSON serializer writes them; the board's scripts add the rest."""

import json

from noidle.results import JobError, JobResult, JobState

CANCELLED_HELD = "cancelled before it started"
CANCELLED_RUNNING = "cancelled while it ran"
CANCELLED_BETWEEN = "cancelled between two slices"
EXPIRED = "expired before it could start"
DEADLINE = "deadline"
"""Code of the error of a job that could not end in time."""


def celery_outcome(result: JobResult) -> tuple[str, str]:
    """Celery's status, and its value as JSON; no value stands for the result itself."""
    match result.state:
        case JobState.DONE:
            return "SUCCESS", ""
        case JobState.FAILED:
            invalid = result.error is not None and result.error.code == "invalid"
            name = "InvalidJob" if invalid else "JobFailed"
            return "FAILURE", _exception("noidle.errors", name, failure(result))
        case JobState.CANCELLED | JobState.EXPIRED:
            return "REVOKED", _exception("celery.exceptions", "TaskRevokedError", why(result))
    raise ValueError(f"state = {result.state.value}: allowed is a final state")


def overdue_held(deadline_s: float) -> JobError:
    """Of a job that waits; ending.lua says the same."""
    return JobError(
        code=DEADLINE,
        message=f"its deadline, {deadline_s:g} s after it was accepted, passed before it could end",
    )


def failure(result: JobResult) -> str:
    """Why the job failed, in words; empty where it did not."""
    if result.state is not JobState.FAILED:
        return ""
    return result.error.message if result.error else "failed without saying why"


def why(result: JobResult) -> str:
    """Why a job that ran has no result, in words; empty where it has one."""
    match result.state:
        case JobState.CANCELLED:
            return CANCELLED_RUNNING
        case JobState.EXPIRED:
            return EXPIRED
    return failure(result)


def _exception(module: str, name: str, message: str) -> str:
    return json.dumps({"exc_type": name, "exc_message": [message], "exc_module": module})
