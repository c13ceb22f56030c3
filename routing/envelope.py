"""What Celery put around a job. Knows nothing of the job itself."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What Celery put around a job that did not come through noidle's client, as JSON data.
    Sent on by the router once the job ended."""

    link: list[dict[str, object]] = field(default_factory=list)
    link_error: list[dict[str, object]] = field(default_factory=list)
    chain: list[dict[str, object]] = field(default_factory=list)
    chord: dict[str, object] | None = None
    group: str | None = None
    group_index: int | None = None
    root_id: str | None = None
    parent_id: str | None = None
    # the message's delivery tag: a message that comes a second time is not a job sent again
    delivery: str | None = None
