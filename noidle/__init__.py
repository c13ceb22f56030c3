"""The producers' side of noidle and the contract that all its parts speak: job models, results,
errors, Redis keys, the client and the command. Knows nothing of routing, pools or tensors.

Names load on first use, so that `import noidle` costs nothing and `noidle.jobs` needs no Redis.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from noidle.client import Client
    from noidle.errors import (
        ClusterUnavailable,
        ConfigError,
        InvalidJob,
        JobCancelled,
        JobExpired,
        JobFailed,
        NoidleError,
        Overloaded,
        ResultTimeout,
        UnknownJob,
    )
    from noidle.handle import Job
    from noidle.jobs import (
        EngineName,
        Generate,
        JobClass,
        Message,
        ModelShape,
        Role,
        Score,
        Train,
    )
    from noidle.results import (
        Decision,
        JobResult,
        JobState,
        JobStatus,
        StreamEvent,
    )

__all__ = [
    "Client",
    "ClusterUnavailable",
    "ConfigError",
    "Decision",
    "EngineName",
    "Generate",
    "InvalidJob",
    "Job",
    "JobCancelled",
    "JobClass",
    "JobExpired",
    "JobFailed",
    "JobResult",
    "JobState",
    "JobStatus",
    "Message",
    "ModelShape",
    "NoidleError",
    "Overloaded",
    "ResultTimeout",
    "Role",
    "Score",
    "StreamEvent",
    "Train",
    "UnknownJob",
]


def __getattr__(name: str) -> object:
    if name in __all__:
        # in the order of their imports: a name that needs only the first loads only that
        for part in ("errors", "jobs", "results", "handle", "client"):
            found: object = getattr(import_module(f"noidle.{part}"), name, None)
            # where it is defined, not where it is imported or another thing has the name
            if getattr(found, "__module__", None) == f"noidle.{part}":
                return found
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
