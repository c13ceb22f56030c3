"""What went wrong with one run, as its pool is told. Knows nothing of how runs are carried
out."""

import torch

from noidle.errors import InvalidJob, NoidleError, shorten
from noidle.results import JobError


def to_job_error(error: BaseException) -> JobError:
    if isinstance(error, InvalidJob):
        return JobError(
            code="invalid",
            message=str(error),
            field=error.field,
            value=error.value,
            allowed=error.allowed,
        )
    if isinstance(error, torch.OutOfMemoryError):
        return JobError(code="engine", message=f"out of memory: {shorten(str(error), 200)}")
    if isinstance(error, NoidleError):
        return JobError(code="engine", message=str(error))
    words = f"{type(error).__name__}: {shorten(str(error), 200)}"
    return JobError(code="engine", message=words)
