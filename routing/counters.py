"""What a pump counts of its own doing."""

from dataclasses import dataclass


@dataclass(slots=True, kw_only=True)
class Counters:
    """What this pump did since it began."""

    looks: int = 0
    leased: int = 0
    # decided, but no longer right when the script ran
    not_granted: int = 0
    noted: int = 0
    failed: int = 0
    # runs that were asked to make room
    preempted: int = 0
    # leases that ran out
    reaped: int = 0
    links: int = 0
    # messages that had a Celery priority
    gathered: int = 0
    errors: int = 0
