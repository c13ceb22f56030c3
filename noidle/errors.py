"""The errors a user or producer can meet, as one tree.

NoidleError
├── InvalidJob          a field of a job is wrong
├── ConfigError         a setting is wrong
├── CheckpointError     a file of a model is missing, malformed or does not fit the rest
├── ClusterUnavailable  Redis or the cluster cannot be reached
├── Overloaded          the cluster takes no more jobs now
├── UnknownJob          no record of that id
├── ResultTimeout       the job is still going
└── JobFailed           the job ended without a result
    ├── JobCancelled
    └── JobExpired

Errors carry their values as fields and say what to do next. Each can be rebuilt from its
message alone, because that is all Celery's result backend keeps of an exception.
"""


class NoidleError(Exception):
    """Root of every error noidle raises on purpose."""


class InvalidJob(NoidleError):
    """A job that can never run as written: `field`, `value` (shortened), `allowed`."""

    def __init__(
        self, message: str, *, field: str = "", value: str = "", allowed: str = ""
    ) -> None:
        super().__init__(message)
        self.field = field
        self.value = value
        self.allowed = allowed

    @classmethod
    def of(cls, field: str, value: object, allowed: str) -> "InvalidJob":
        """Builds the message every refusal shares: field, value, what is allowed."""
        shown = shorten(value)
        return cls(
            f"{field} = {shown}: allowed is {allowed}", field=field, value=shown, allowed=allowed
        )


class ConfigError(NoidleError):
    """A setting that stops the start: `variable`, `value`, `allowed`."""

    def __init__(
        self, message: str, *, variable: str = "", value: str = "", allowed: str = ""
    ) -> None:
        super().__init__(message)
        self.variable = variable
        self.value = value
        self.allowed = allowed

    @classmethod
    def of(cls, variable: str, value: object, allowed: str) -> "ConfigError":
        """Builds the message of a refused option: its name, value, what is allowed."""
        shown = shorten(value)
        return cls(
            f"{variable} = {shown}: allowed is {allowed}",
            variable=variable,
            value=shown,
            allowed=allowed,
        )


class CheckpointError(NoidleError):
    """A model's files cannot be used: `path` of the file, `part` (tensor or field) within it."""

    def __init__(self, message: str, *, path: str = "", part: str = "") -> None:
        super().__init__(message)
        self.path = path
        self.part = part

    @classmethod
    def of(cls, path: object, fault: str, part: str = "") -> "CheckpointError":
        """Builds the message every refusal shares: file, tensor or field, what is wrong."""
        where = f"{path}: {part}" if part else str(path)
        return cls(f"{where}: {fault}", path=str(path), part=part)


class ClusterUnavailable(NoidleError):
    """Redis did not answer at `address` (never with its password)."""

    def __init__(self, message: str, *, address: str = "") -> None:
        super().__init__(message)
        self.address = address


class Overloaded(NoidleError):
    """Accepting one more job would risk those already held; try again after `retry_after_s`."""

    def __init__(self, message: str, *, retry_after_s: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after_s = retry_after_s


class UnknownJob(NoidleError):
    """No record of `job_id`: never accepted, lost by a Redis failover, or past its keeping time."""

    def __init__(self, message: str, *, job_id: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id


class ResultTimeout(NoidleError):
    """The caller's patience ended before the job did; the job goes on."""

    def __init__(self, message: str, *, job_id: str = "", state: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id
        self.state = state


class JobFailed(NoidleError):
    """The job ended without a result; `reason` is a JobError code, `job_id` the job."""

    def __init__(self, message: str, *, job_id: str = "", reason: str = "") -> None:
        super().__init__(message)
        self.job_id = job_id
        self.reason = reason


class JobCancelled(JobFailed):
    """Somebody cancelled the job."""


class JobExpired(JobFailed):
    """The job's `expires_s` passed before it could start."""


def shorten(value: object, limit: int = 80) -> str:
    """The value as it can be shown in an error: `repr`, cut at `limit` characters."""
    size = len(value) if isinstance(value, str | bytes) else None
    # the repr of ten million characters is not worth making to show eighty
    part = value[: limit + 1] if isinstance(value, str | bytes) else value
    try:
        shown = repr(part)
    except RecursionError:
        return "what is nested too deep to show"
    except ValueError:  # Python writes no integers of more than 4300 digits
        return "a number of thousands of digits"
    if size is None:
        return shown if len(shown) <= limit else f"{shown[:limit]}…"
    unit = "characters" if isinstance(value, str) else "bytes"
    return shown if len(shown) <= limit else f"{shown[:limit]}… ({size} {unit})"


def printable(text: str, limit: int = 80) -> str:
    """Text from outside that goes into a message as it is: one short line of valid UTF-8."""
    plain = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text[:limit])
    return plain if len(text) <= limit else f"{plain}…"
