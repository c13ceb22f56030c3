"""Waits while processes come up, and notices when one does not. Knows nothing of what they are."""

import time
from collections.abc import Callable

from noidle.errors import NoidleError
from ops.supervisor import Supervisor
from ops.wakeup import Wakeup

_LOOK_EVERY_S = 0.2
_DEATHS = 3
_LOG_LINES = 15


class StartFailed(NoidleError):
    """A process does not come up; the message ends with the last lines of its log."""


class Interrupted(NoidleError):
    """The user ended the start."""


def wait_until(
    condition: Callable[[], bool],
    supervisor: Supervisor,
    wakeup: Wakeup,
    *,
    limit_s: float,
    clock: Callable[[], float] = time.monotonic,
) -> bool:
    """Whether the condition came true within the limit; restarts what dies meanwhile.

    Raises:
        StartFailed: a process died three times.
        Interrupted: the user asked to end.
    """
    end_s = clock() + limit_s
    while clock() < end_s:
        if wakeup.ending:
            raise Interrupted("ended while starting")
        if condition():
            return True
        supervisor.tick(_LOOK_EVERY_S)
        _refuse_dying(supervisor)
    return False


def failure(supervisor: Supervisor, name: str, what: str) -> StartFailed:
    """With the end of the process's log, which tells why."""
    lines = "\n".join(f"  {line}" for line in supervisor.log(name).last_lines(_LOG_LINES))
    return StartFailed(f"{name} {what}; the end of its log:\n{lines or '  (empty)'}")


def _refuse_dying(supervisor: Supervisor) -> None:
    for name, child in supervisor.children.items():
        if child.deaths >= _DEATHS:
            raise failure(supervisor, name, f"died {_DEATHS} times ({child.last_exit})")
