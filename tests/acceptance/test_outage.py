"""Redis is away for almost twice as long as a lease lasts: no running job is run again."""

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from noidle.results import JobState
from tests.acceptance.census import Answer, said
from tests.acceptance.fleet import Fleet, state
from tests.integration.ops.commands import wait_for
from tests.valkey_process import ValkeyProcess

AWAY_S = 15.0
LEASE_S = "8"
# at a tenth of a second a token: over while Redis is away, or some seconds later
TOKENS = (60, 60, 200, 200, 200, 200)
PATIENCE_S = 90.0


@pytest.fixture
def fleet(tmp_path: Path, own_valkey: ValkeyProcess) -> Iterator[Fleet]:
    fleet = Fleet(tmp_path, own_valkey.url)
    fleet.router(NOIDLE_LEASE_S=LEASE_S)
    yield fleet
    fleet.close()


def test_no_running_job_is_run_again(fleet: Fleet, own_valkey: ValkeyProcess):
    speed = {"ECHO_STEP_S": "0.1", "ECHO_STEP_S_PER_SEQUENCE": "0"}
    slots = {"NOIDLE_SLOTS": str(len(TOKENS))}
    slow = fleet.pool("cpu", NOIDLE_LEASE_S=LEASE_S, **slots, **speed)
    fleet.pool("gpu", "--stand-in", NOIDLE_LEASE_S=LEASE_S)
    fleet.wait_ready("cpu@here", "gpu@here")
    asked = [
        {"prompt": f"number {number}", "seed": number, "max_tokens": tokens}
        for number, tokens in enumerate(TOKENS)
    ]
    quick = [fleet.send(engine="gpu", **fields) for fields in asked]
    undisturbed = [Answer.of(job.result(timeout_s=PATIENCE_S)) for job in quick]
    with ThreadPoolExecutor(len(TOKENS)) as threads:
        jobs = [fleet.send(engine="cpu", **fields) for fields in asked]
        held = fleet.send(engine="cpu")
        readers = [threads.submit(lambda job=job: said(job.events(PATIENCE_S))) for job in jobs]
        fleet.wait_moving(*jobs)
        assert state(held) is JobState.HELD
        # in order: what a power cut loses of the last second is another test's matter
        own_valkey.stop()
        # how long it is away is what this is about
        threading.Event().wait(AWAY_S)
        # the router is back first, and sees only leases that ran out
        slow.signal(signal.SIGSTOP)
        own_valkey.start()
        since_ms = fleet.board.now_ms()
        wait_for(lambda: fleet.reaped_ms() > since_ms, "a look at all leases")
        slow.signal(signal.SIGCONT)
        results = [job.result(timeout_s=PATIENCE_S) for job in jobs]
        assert [Answer.of(result) for result in results] == undisturbed
        assert {result.attempt for result in results} == {1}
        assert [reader.result() for reader in readers] == undisturbed
    assert held.result(timeout_s=PATIENCE_S).attempt == 1
    fleet.census.check(dict(zip([job.id for job in jobs], undisturbed, strict=True)))
    fleet.census.wait_settled(["cpu@here", "gpu@here"])
