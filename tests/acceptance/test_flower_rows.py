"""What Flower's API shows behind its password: one row a job, with the pool that ran it and how
it ended."""

from typing import Any

import pytest

from noidle import Client, keys
from noidle.connection import connect
from noidle.results import JobState
from tests.acceptance.fleet import generate, moves
from tests.integration.ops.commands import wait_for
from tests.integration.ops.local import Local

PATIENCE_S = 60.0
STATES = {
    JobState.DONE: "SUCCESS",
    JobState.FAILED: "FAILURE",
    JobState.CANCELLED: "REVOKED",
}


@pytest.fixture
def mixed() -> list[dict[str, Any]]:
    done = [generate(f"row {number}") for number in range(20)]
    score = {"kind": "score", "model": "echo", "text": "how likely is that"}
    train = {
        "kind": "train",
        "model": "flower-rows",
        "text": "a little text",
        "steps": 90,
        "slice_s": 0.3,
    }
    return [*done, score, train, generate("!fail 2"), generate("!fail")]


def test_there_is_one_row_a_job(echo_cluster: Local, mixed: list[dict[str, Any]]):
    with Client(echo_cluster.file.url) as client:
        cancelled = client.submit(generate(max_tokens=100_000))
        wait_for(lambda: moves(cancelled, 1), "a running job")
        cancelled.cancel()
        jobs = [cancelled, *client.submit_many(mixed)]
        results = {job.id: job.outcome(timeout_s=PATIENCE_S) for job in jobs}
    expected = {
        job_id: (STATES[result.state], result.pool, f"noidle.{result.kind}")
        for job_id, result in results.items()
    }
    rows = wait_for(lambda: complete(echo_cluster, set(expected)), "a row of every job that ended")
    assert {job_id: told(rows[job_id]) for job_id in expected} == expected
    with connect(echo_cluster.file.url) as server:
        # a row that is no job is a message that nobody asked to see
        assert [job_id for job_id in rows if not server.exists(keys.job(job_id))] == []


def complete(cluster: Local, ids: set[str]) -> dict[str, Any] | None:
    """All rows, once these are there and ended."""
    rows: dict[str, Any] = cluster.ask_flower("/api/tasks?limit=100000")
    ended = {job_id for job_id, row in rows.items() if row["state"] in STATES.values()}
    return rows if ids <= ended else None


def told(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["state"], row["worker"], row["name"]
