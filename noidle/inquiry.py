"""What `explain` asks Redis of a job. Owns the reading; changes nothing, and knows no words."""

import json
from typing import Any, cast

import redis

from noidle import keys
from noidle.acceptance import closed, crowded
from noidle.connection import reachable
from noidle.explanation import Explanation, Row
from noidle.jobs import JobClass
from noidle.record import read_decisions, read_status, read_waited
from noidle.results import JobState, JobStatus
from noidle.snapshot import RouterDetail

SILENT_S = 3.0
"""A pool that says nothing for so long has no snapshot any more."""


def inquire(client: redis.Redis, job_id: str) -> Explanation | None:
    """All that is known of a job, a refused one too; None if there is no trace of it."""
    status = read_status(client, job_id)
    if status is None:
        return _refused(client, job_id)
    held = status.state is JobState.HELD
    with reachable(client):
        told = client.get(keys.ROUTER)
        silent = _silent(client) if held else ()
    return Explanation(
        status=status,
        decisions=tuple(read_decisions(client, job_id)),
        waited=read_waited(client, job_id),
        row=_row(client, job_id) if held else None,
        router=RouterDetail.model_validate_json(told) if isinstance(told, str) else None,
        unheard=held and told is None,
        silent=silent,
    )


def _silent(client: redis.Redis) -> tuple[tuple[str, float], ...]:
    """Pools that were there a minute ago and say nothing: no decision names them."""
    seconds, micros = client.time()
    now_ms = seconds * 1000 + micros / 1000
    found = cast("list[tuple[str, float]]", client.zrange(keys.POOLS, 0, -1, withscores=True))
    ages = [(pool, (now_ms - heard_ms) / 1000) for pool, heard_ms in found]
    return tuple((pool, round(age_s, 1)) for pool, age_s in ages if age_s > SILENT_S)


def _row(client: redis.Redis, job_id: str) -> Row | None:
    """Where it stands among those that ask for the same; the first of them knows why."""
    with reachable(client):
        name = client.hget(keys.job(job_id), "set")
        if not isinstance(name, str):
            return None
        place = cast("int | None", client.zrank(keys.held(*name.split(":", 1)), job_id))
        if not place:
            return None
        first = cast("list[str]", client.zrange(keys.held(*name.split(":", 1)), 0, 0))
    return Row(before=place, first=first[0], decisions=tuple(read_decisions(client, first[0])))


def _refused(client: redis.Redis, job_id: str) -> Explanation | None:
    """One that the cluster had no room for was never a job: only this list knows of it."""
    with reachable(client):
        entries = cast("list[str]", client.lrange(keys.REFUSED, 0, -1))
    for entry in map(json.loads, entries):
        if entry["id"] == job_id:
            return Explanation(status=_refusal(entry), decisions=())
    return None


def _refusal(entry: dict[str, Any]) -> JobStatus:
    job_class, _, requirement = entry["set"].partition(":")
    if entry.get("held") is None:
        why = str(closed(entry["why"]))
    else:
        why = str(crowded(entry["held"], entry.get("retry_s")))
    return JobStatus(
        id=entry["id"],
        state=JobState.FAILED,
        kind=requirement.partition("|")[0],
        model=entry["model"],
        job_class=JobClass(job_class),
        accepted_ms=int(entry["at"]),
        why=f"it was not accepted: {why}",
    )
