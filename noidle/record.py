"""Reading what the board keeps of a job: status, result, decisions, stream. Owns how the stored
fields become wire models; changes nothing. Used by the client and by the router's board.

Every `read_…` raises ClusterUnavailable where Redis does not answer."""

import json
from collections.abc import Mapping, Sequence
from typing import cast

import redis

from noidle import keys
from noidle.connection import BLOCK_LIMIT_S, reachable
from noidle.jobs import JobClass
from noidle.results import Decision, JobResult, JobState, JobStatus, StreamEvent, Waited

STATUS_FIELDS = (
    "state",
    "kind",
    "model",
    "class",
    "pool",
    "attempt",
    "crashes",
    "tokens",
    "step",
    "goal",
    "loss",
    "accepted",
    "why",
    "preemptions",
)
_WAITED_FIELDS = ("accepted", "held_ms", "held_since", "waits", "cause", "cause_at")
UNKNOWN = "unknown"
"""Kind or model of a job that was refused before it said so."""
FIRST = "0"
"""Before the first entry of every stream."""


def read_status(client: redis.Redis, job_id: str) -> JobStatus | None:
    """Where the job stands; None if there is no record of it."""
    with reachable(client), client.pipeline(transaction=False) as pipe:
        pipe.hmget(keys.job(job_id), STATUS_FIELDS)
        pipe.lindex(keys.decisions(job_id), 0)
        values, decision = pipe.execute()
    return status_of(job_id, values, decision)


def read_result(client: redis.Redis, job_id: str) -> JobResult | None:
    """How the job ended; None while it has not, or where there is no record of it."""
    with reachable(client):
        found = client.get(keys.result(job_id))
    return JobResult.model_validate_json(found) if isinstance(found, str) else None


def read_decisions(client: redis.Redis, job_id: str) -> list[Decision]:
    """Why the job went where it went, newest first."""
    with reachable(client):
        found = client.lrange(keys.decisions(job_id), 0, -1)
    assert isinstance(found, list)
    return [Decision.model_validate_json(entry) for entry in found]


def read_waited(client: redis.Redis, job_id: str) -> Waited | None:
    """How long the job has been held, and what for; None if there is no record of it."""
    with reachable(client), client.pipeline(transaction=False) as pipe:
        pipe.hmget(keys.job(job_id), _WAITED_FIELDS)
        pipe.time()
        values, (seconds, micros) = pipe.execute()
    fields = {name: value for name, value in zip(_WAITED_FIELDS, values, strict=True) if value}
    if "accepted" not in fields:
        return None
    now_ms = seconds * 1000 + micros / 1000
    held_ms = float(fields.get("held_ms", 0))
    causes: dict[str, float] = json.loads(fields.get("waits", "{}"))
    if "held_since" in fields:
        held_ms += max(0.0, now_ms - float(fields["held_since"]))
    if "cause" in fields:
        cause = fields["cause"]
        causes[cause] = causes.get(cause, 0.0) + max(0.0, now_ms - float(fields["cause_at"]))
    return waited_of(held_ms, causes)


def waited_of(held_ms: float, causes_ms: Mapping[str, float]) -> Waited:
    causes = {cause: round(span_ms / 1000, 3) for cause, span_ms in causes_ms.items()}
    return Waited(held_s=round(held_ms / 1000, 3), causes=causes)


def read_events(
    client: redis.Redis, job_id: str, after: str = FIRST, *, block_s: float = 0.0
) -> list[tuple[str, StreamEvent]]:
    """The stream's entries behind `after`, each with its own position; waits up to `block_s`
    (5 s at most) for the first of them. The last entry of a job carries `end`."""
    block_ms = int(min(block_s, BLOCK_LIMIT_S) * 1000) or None
    with reachable(client):
        found = client.xread({keys.stream(job_id): after}, block=block_ms)
    entries = cast("list[tuple[str, list[tuple[str, dict[str, str]]]]]", found or [])
    return [(position, event_of(fields)) for _, part in entries for position, fields in part]


def status_of(
    job_id: str, values: Sequence[str | None], decision: str | None = None
) -> JobStatus | None:
    """`values` are those of STATUS_FIELDS, `decision` the newest one as JSON."""
    fields = {name: value for name, value in zip(STATUS_FIELDS, values, strict=True) if value}
    if "state" not in fields:
        return None
    state = JobState(fields["state"])
    why = fields.get("why")
    if state is JobState.HELD and decision:
        why = json.loads(decision)["reason"]
    return JobStatus(
        id=job_id,
        state=state,
        kind=fields.get("kind", UNKNOWN),
        model=fields.get("model", UNKNOWN),
        job_class=JobClass(fields.get("class", JobClass.STANDARD)),
        pool=fields.get("pool"),
        attempt=int(fields.get("attempt", 0)),
        crashes=int(fields.get("crashes", 0)),
        preemptions=int(fields.get("preemptions", 0)),
        progress=int(fields.get("step") or fields.get("tokens") or 0),
        goal=int(fields["goal"]) if "goal" in fields else None,
        loss=float(fields["loss"]) if "loss" in fields else None,
        accepted_ms=int(float(fields["accepted"])),
        why=why,
    )


def event_of(fields: Mapping[str, str]) -> StreamEvent:
    """One stream entry; the short names are those that report.lua writes."""
    return StreamEvent(
        text=fields.get("t"),
        tokens=json.loads(fields["k"]) if "k" in fields else (),
        step=int(fields["s"]) if "s" in fields else None,
        goal=int(fields["g"]) if "g" in fields else None,
        loss=float(fields["l"]) if "l" in fields else None,
        tokens_per_s=float(fields["v"]) if "v" in fields else None,
        end=JobState(fields["end"]) if "end" in fields else None,
    )
