"""What Flower's API shows behind its password: one row a job, with the pool that ran it and how
it ended."""

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from noidle import Client, keys
from noidle.connection import connect
from noidle.results import JobState
from tests.acceptance.fleet import generate, moves
from tests.integration.ops.commands import start, stop, wait_for
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


def test_a_job_that_moved_is_one_row_with_the_pool_that_ended_it(
    echo_cluster: Local, tmp_path: Path
):
    words = ("worker", "gpu", "--stand-in", "--program", "echo")
    url = echo_cluster.file.url
    with ExitStack() as processes, Client(url) as client:

        def begin(host: str) -> subprocess.Popen[str]:
            folder, slow = tmp_path / host, {"echo_step_s": 0.05, "grace_s": "0.1"}
            process = start(folder, *words, url=url, host=host, **slow)
            processes.callback(stop, process)
            return process

        first = begin("first")
        job = client.submit(generate("from one to the next", engine="gpu", max_tokens=60))
        wait_for(lambda: moves(job, 3), "a running job")
        first.terminate()
        assert first.wait(30) == 0
        begin("next")
        result = job.result(timeout_s=PATIENCE_S)
        assert (result.pool, result.attempt) == ("gpu@next", 2)
        rows = wait_for(lambda: complete(echo_cluster, {job.id}), "a row that ended")
    assert told(rows[job.id]) == ("SUCCESS", "gpu@next", "noidle.generate")


def complete(cluster: Local, ids: set[str]) -> dict[str, Any] | None:
    """All rows, once these are there and ended."""
    rows: dict[str, Any] = cluster.ask_flower("/api/tasks?limit=100000")
    ended = {job_id for job_id, row in rows.items() if row["state"] in STATES.values()}
    return rows if ids <= ended else None


def told(row: dict[str, Any]) -> tuple[str, str, str]:
    return row["state"], row["worker"], row["name"]
