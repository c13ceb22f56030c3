"""What Celery is told of a job's end. Owns status and value of the result backend's entry, as
Celery's own JSON serializer writes them; the board's scripts add the rest."""

import json

from noidle.results import JobResult, JobState


def celery_outcome(result: JobResult) -> tuple[str, str]:
    """Celery's status, and its value as JSON; no value stands for the result itself."""
    match result.state:
        case JobState.DONE:
            return "SUCCESS", ""
        case JobState.FAILED:
            invalid = result.error is not None and result.error.code == "invalid"
            name = "InvalidJob" if invalid else "JobFailed"
            return "FAILURE", _exception("noidle.errors", name, failure(result))
        case JobState.CANCELLED:
            return "REVOKED", _revoked("cancelled while it ran")
        case JobState.EXPIRED:
            return "REVOKED", _revoked("expired before it could start")
    raise ValueError(f"state = {result.state.value}: allowed is a final state")


def failure(result: JobResult) -> str:
    """Why the job failed, in words; empty where it did not."""
    if result.state is not JobState.FAILED:
        return ""
    return result.error.message if result.error else "failed without saying why"


def _revoked(reason: str) -> str:
    return _exception("celery.exceptions", "TaskRevokedError", reason)


def _exception(module: str, name: str, message: str) -> str:
    return json.dumps({"exc_type": name, "exc_message": [message], "exc_module": module})
