"""A run that ended, as the router learns from it. Owns the record; knows nothing of what is
learned."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One that ended with a result; all times are Redis's clock."""

    job: str
    kind: str
    model: str
    label: str | None
    leased_ms: int
    # absent: it made no token; before the lease: a former attempt made it
    first_ms: int | None
    ended_ms: int
    # made, and asked for at most
    tokens: int
    max_tokens: int
