"""A job that takes long runs once, and one that crashes its engine each time harms no other. One
cluster, whose messages come back after a tenth of the time that the long job takes."""

from collections.abc import Iterator

import pytest
from celery import Celery

from noidle.handle import Job
from noidle.results import JobState
from tests.acceptance.census import Answer
from tests.acceptance.fleet import Fleet, generate
from tests.valkey_process import ValkeyProcess

VISIBILITY_S = "1.5"
STEP_S, TOKENS = "0.05", 300
NEIGHBOURS = 5
PATIENCE_S = 90.0


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    valkey = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    valkey.start()
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), valkey.url)
    soon = {"NOIDLE_VISIBILITY_S": VISIBILITY_S, "ECHO_STEP_S_PER_SEQUENCE": "0"}
    try:
        fleet.router(**soon)
        fleet.pool("cpu", NOIDLE_SLOTS="2", ECHO_STEP_S=STEP_S, **soon)
        fleet.pool("gpu", "--stand-in", NOIDLE_SLOTS="8", ECHO_STEP_S="0.02", **soon)
        fleet.wait_ready("cpu@here", "gpu@here")
        yield fleet
    finally:
        fleet.close()
        valkey.stop()


@pytest.fixture(scope="module")
def long_job(fleet: Fleet) -> Job:
    """Sent with Celery alone, and under way; it takes 15 s, in which the other tests run."""
    job = generate("it takes its time", engine="cpu", max_tokens=TOKENS)
    with Celery("producer", broker=fleet.url, set_as_current=False) as app:
        sent = app.send_task("noidle.route", args=[job], queue="route", ignore_result=True)
    job = fleet.client.job(sent.id)
    fleet.wait_known(job)
    fleet.wait_moving(job)
    return job


@pytest.mark.parametrize("poison", ["!crash", "!crash 5"], ids=["at once", "after some tokens"])
def test_a_poison_job_ends_failed_and_harms_no_other(fleet: Fleet, long_job: Job, poison: str):
    asked = [
        {"prompt": f"beside it {number}", "seed": number, "engine": "gpu", "max_tokens": 40}
        for number in range(NEIGHBOURS)
    ]
    undisturbed = [fleet.send(**fields) for fields in asked]
    expected = [Answer.of(job.result(timeout_s=PATIENCE_S)) for job in undisturbed]
    neighbours = [fleet.send(**fields) for fields in asked]
    fleet.wait_moving(*neighbours)
    bad = fleet.send(poison, engine="gpu", max_tokens=60)
    outcome = bad.outcome(timeout_s=PATIENCE_S)
    assert outcome.state is JobState.FAILED
    assert outcome.error is not None
    assert outcome.error.code == "crashed"
    assert "3 times" in outcome.error.message
    results = [job.result(timeout_s=PATIENCE_S) for job in neighbours]
    assert [Answer.of(one) for one in results] == expected
    assert max(one.attempt or 0 for one in results) > 1, "nobody was beside it"
    assert long_job.status().attempt == 1
    # and the pool works on
    assert fleet.send(engine="gpu").result(timeout_s=PATIENCE_S).pool == "gpu@here"


def test_a_job_of_ten_visibility_timeouts_runs_once(fleet: Fleet, long_job: Job):
    result = long_job.result(timeout_s=PATIENCE_S)
    took_ms = result.times.decode_ms or 0
    assert took_ms >= 10 * float(VISIBILITY_S) * 1000
    assert result.attempt == 1
    fleet.census.check({long_job.id: Answer.of(result)})
    fleet.census.wait_settled(["cpu@here", "gpu@here"])
