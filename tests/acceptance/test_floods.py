"""Thousands of jobs that wait, and jobs that nobody can run, are in nobody's way. One cluster:
its one pool has four slots, and the background jobs run for longer than the tests."""

import signal
from collections.abc import Callable, Iterator
from typing import cast

import pytest

from noidle import keys
from noidle.handle import Job
from noidle.jobs import EngineName
from noidle.results import JobState
from noidle.snapshot import PoolState
from tests.acceptance.census import Answer
from tests.acceptance.fleet import Fleet, generate, state
from tests.integration.ops.commands import wait_for
from tests.valkey_process import ValkeyProcess

FLOOD = 3_000
SPARE_SLOTS = 1
NOBODYS = 40
HERE, THERE = "cpu@here", "cpu@there"
HALF_AN_HOUR = {"max_tokens": 100_000}
PATIENCE_S = 60.0
Report = Callable[[str], None]


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """With the flood waiting."""
    valkey = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    valkey.start()
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), valkey.url)
    try:
        fleet.router()
        fleet.pool("cpu", NOIDLE_SLOTS="4", ECHO_STEP_S="0.02")
        fleet.wait_ready(HERE)
        fleet.client.submit_many(
            generate(f"whenever {number}", **HALF_AN_HOUR, **{"class": "background"})
            for number in range(FLOOD)
        )
        wait_for(lambda: held(fleet, "background") == FLOOD - 4 + SPARE_SLOTS, "the flood to wait")
        yield fleet
    finally:
        fleet.close()
        valkey.stop()


def held(fleet: Fleet, job_class: str, engine: str = "*") -> int:
    """How many jobs of a class wait for an engine."""
    names = cast("set[str]", fleet.server.smembers(keys.HELD_SETS))
    found = [name.split(":", 1) for name in names]
    chosen = [name for name in found if name[0] == job_class and name[1].split("|")[2] == engine]
    return sum(cast(int, fleet.server.zcard(keys.held(*name))) for name in chosen)


def running(fleet: Fleet, pool: str = HERE) -> set[str]:
    return set(cast("list[str]", fleet.server.hkeys(keys.pool_leases(pool))))


def test_an_interactive_job_starts_at_once_where_a_slot_is_free(fleet: Fleet, report: Report):
    before = running(fleet)
    assert len(before) == 4 - SPARE_SLOTS
    results = [
        fleet.send(f"now {number}", **{"class": "interactive"}).result(timeout_s=PATIENCE_S)
        for number in range(10)
    ]
    # no slot became free for it, and nobody of the flood went before it
    assert running(fleet) == before
    assert held(fleet, "background") == FLOOD - len(before)
    assert {result.attempt for result in results} == {1}
    waits = sorted(result.times.held_ms or 0 for result in results)
    firsts = sorted(result.times.ttft_ms or 0 for result in results)
    report(
        f"interactive behind {FLOOD} background jobs: held {waits[5]:.1f} ms, first token after"
        f" {firsts[5]:.1f} ms (medians of 10; worst {waits[-1]:.1f} and {firsts[-1]:.1f})"
    )


def test_jobs_that_no_pool_can_run_delay_nobody_and_a_late_pool_gets_them(
    fleet: Fleet, report: Report
):
    nobodys = [
        fleet.send(f"on a gpu {number}", engine="gpu", **{"class": "interactive"})
        for number in range(NOBODYS)
    ]
    wait_for(lambda: held(fleet, "interactive", "gpu") == NOBODYS, "jobs that wait for a gpu")
    later = fleet.send("sent after them, and less urgent").result(timeout_s=PATIENCE_S)
    assert (later.pool, later.attempt) == (HERE, 1)
    assert held(fleet, "interactive", "gpu") == NOBODYS

    fleet.pool("gpu", "--stand-in", NOIDLE_SLOTS="8", ECHO_STEP_S="0.02")
    ready_ms = wait_for(lambda: ready_ms_of(fleet, "gpu@here"), "the late pool")
    results = [job.result(timeout_s=PATIENCE_S) for job in nobodys]
    assert {result.engine for result in results} == {EngineName.GPU}
    waited_ms = first_lease_ms(fleet, nobodys) - ready_ms
    report(f"a late pool got held work {waited_ms:.0f} ms after it was seen ready")


def ready_ms_of(fleet: Fleet, name: str) -> int | None:
    """When a pool said that it is ready, as soon as it did."""
    pool = fleet.snapshots().get(name)
    return pool.published_ms if pool is not None and pool.state is PoolState.READY else None


def first_lease_ms(fleet: Fleet, jobs: list[Job]) -> float:
    found = [fleet.server.hget(keys.job(job.id), "leased") for job in jobs]
    return min(float(cast(str, each)) for each in found)


def test_a_pool_of_another_host_takes_jobs_and_hands_back_what_it_cannot_finish(
    fleet: Fleet, report: Report
):
    """It joins by address. What it gives back goes on elsewhere, token for token."""
    mine = {"prompt": "so it goes", "engine": "cpu", "seed": 7, "max_tokens": 100}
    expected = Answer.of(fleet.send(**mine).result(timeout_s=PATIENCE_S))
    # the last slot here is taken, so that mine will go there
    blocker = fleet.send(engine="cpu", **HALF_AN_HOUR)
    fleet.wait_moving(blocker)
    # so slow that only the far end of the flood ends sooner there
    second = fleet.pool(
        *("cpu", "--slots", "4"), NOIDLE_HOST="there", NOIDLE_GRACE_S="0.2", ECHO_STEP_S="0.2"
    )
    ready_ms = wait_for(lambda: ready_ms_of(fleet, THERE), "the second host")
    wait_for(lambda: len(running(fleet, THERE)) == 4 - SPARE_SLOTS, "work for the second host")
    flood = [fleet.client.job(each) for each in running(fleet, THERE)]
    waited_ms = first_lease_ms(fleet, flood) - ready_ms
    report(f"a second host got held work {waited_ms:.0f} ms after it was seen ready")

    job = fleet.send(**mine)
    fleet.wait_moving(job, *flood)
    assert job.status().pool == THERE
    second.signal(signal.SIGTERM)
    assert second.wait() == 0
    assert {state(each) for each in (job, *flood)} == {JobState.HELD}
    assert job.status().progress > 0
    blocker.cancel()
    result = job.result(timeout_s=PATIENCE_S)
    assert (result.pool, result.attempt) == (HERE, 2)
    assert Answer.of(result) == expected
