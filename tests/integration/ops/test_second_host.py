"""A pool that joins by address under another host name, works, and leaves in order."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from noidle import Client
from noidle.results import JobState
from tests.integration.ops.commands import start, stop, wait_for
from tests.integration.ops.local import ECHO, Local

STEP_S = 0.05
TOKENS = 60
JOBS = 8


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    found = Local(tmp_path / "first")
    try:
        found.up("--engines", "cpu", "--no-flower", "--slots", "2", echo_step_s=STEP_S)
        yield found
    finally:
        found.close()


@pytest.fixture
def second(tmp_path: Path, local: Local) -> Iterator[subprocess.Popen[str]]:
    process = start(
        tmp_path / "second",
        *("worker", "cpu", *ECHO, "--slots", "4"),
        url=local.file.url,
        echo_step_s=STEP_S,
        host="second",
        # too short for a job: what runs is handed back
        grace_s="0.2",
    )
    yield process
    stop(process)


def make_job(number: int) -> dict[str, object]:
    prompt = f"tell me about number {number}"
    return {
        "kind": "generate",
        "model": "echo",
        "prompt": prompt,
        "max_tokens": TOKENS,
        "seed": number,
    }


def test_a_second_host_takes_jobs_and_hands_back_what_it_cannot_finish(
    local: Local, second: subprocess.Popen[str]
):
    with Client(local.file.url) as client:
        alone = [client.submit(make_job(0)).result(timeout_s=60)]
        wait_for(
            lambda: {pool["pool"] for pool in local.status()["pools"]} == {"cpu@box", "cpu@second"},
            "a second pool",
        )
        jobs = [client.submit(make_job(number)) for number in range(JOBS)]

        def running_there() -> bool:
            found = [job.status() for job in jobs]
            return any(
                each.pool == "cpu@second" and each.state is JobState.RUNNING and each.progress
                for each in found
            )

        wait_for(running_there, "a job that runs on the second host")
        second.terminate()
        assert second.wait(30) == 0
        results = [job.result(timeout_s=60) for job in jobs]
    assert {result.state for result in results} == {JobState.DONE}
    assert all(len(result.tokens or ()) == TOKENS for result in results)
    # handed back in the middle, gone on elsewhere, and the same to the last token
    assert results[0].tokens == alone[0].tokens
    moved = [result for result in results if (result.attempt or 0) > 1]
    assert moved
    assert {result.pool for result in moved} == {"cpu@box"}
    assert {pool["pool"] for pool in local.status()["pools"]} == {"cpu@box"}
