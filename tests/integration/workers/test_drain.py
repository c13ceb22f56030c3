"""How a pool ends when it is told to."""

import signal

import pytest
from celery import Celery

from noidle.results import JobState
from tests.integration.workers.processes import until

POOL = "cpu@here"
LONG = {"prompt": "a long one", "max_tokens": 3_000, "seed": 5}


def moving(lender, job_id, tokens=3):
    until(lambda: lender.board.status(job_id).progress >= tokens, "the job moves")


def gone(lender):
    return not any(one.pool == POOL for one in lender.board.pools())


def test_a_pool_that_is_told_to_end_finishes_what_can_end(start, lender):
    pool = start("pool", "cpu", NOIDLE_SLOTS="2")
    lender.wait_for(POOL)
    jobs = [lender.run(POOL, max_tokens=150) for _ in range(2)]
    moving(lender, jobs[1])
    pool.signal(signal.SIGTERM)
    assert pool.wait() == 0
    assert [lender.board.result(job).state for job in jobs] == ["done", "done"]
    assert [lender.board.result(job).attempt for job in jobs] == [1, 1]
    assert gone(lender)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_what_does_not_end_in_the_grace_goes_on_elsewhere_token_for_token(start, lender, number):
    pool = start("pool", "cpu", NOIDLE_SLOTS="2", NOIDLE_GRACE_S="0.2")
    start("pool", "gpu", NOIDLE_SLOTS="2", ECHO_STEP_S="0")
    lender.wait_for(POOL)
    lender.wait_for("gpu@here")
    whole = lender.result(lender.run("gpu@here", **LONG))
    job, waiting = lender.run(POOL, **LONG), lender.accept()
    moving(lender, job)
    pool.signal(number)
    assert pool.wait() == 0
    assert lender.board.status(job).state is JobState.HELD
    assert lender.board.status(job).crashes == 0
    assert lender.lease(waiting, POOL) is None
    lender.lease(job, "gpu@here")
    result = lender.result(job)
    assert (result.text, result.tokens, result.attempt) == (whole.text, whole.tokens, 2)


def test_a_draining_pool_gets_no_lease_and_keeps_its_runs(start, lender):
    pool = start("pool", "cpu", NOIDLE_SLOTS="4", ECHO_STEP_S="0.01")
    lender.wait_for(POOL)
    job = lender.run(POOL, prompt="x", max_tokens=200)
    moving(lender, job)
    pool.signal(signal.SIGTERM)
    until(lambda: not lender.ready(POOL), "the pool drains")
    assert lender.lease(lender.accept(), POOL) is None
    assert lender.result(job).attempt == 1
    assert pool.wait() == 0


@pytest.mark.parametrize("numbers", [[signal.SIGTERM, signal.SIGTERM], [signal.SIGQUIT]])
def test_a_second_signal_hands_everything_back_at_once(start, lender, numbers):
    pool = start("pool", "cpu", NOIDLE_SLOTS="2", NOIDLE_GRACE_S="600")
    lender.wait_for(POOL)
    job = lender.run(POOL, prompt="x", max_tokens=100_000)
    moving(lender, job)
    for number in numbers:
        pool.signal(number)
        until(lambda: not lender.ready(POOL), "the signal is heard")
    assert pool.wait() == 0
    assert lender.board.status(job).state is JobState.HELD
    assert lender.board.status(job).progress >= 3


def test_a_training_slice_is_saved_before_the_pool_ends(start, lender):
    pool = start("pool", "cpu", NOIDLE_SLOTS="1", NOIDLE_GRACE_S="0.1")
    lender.wait_for(POOL)
    job = lender.accept(
        kind="train", model="small", prompt=None, text="some text", steps=10_000, slice_s=60
    )
    lender.lease(job, POOL)
    moving(lender, job)
    pool.signal(signal.SIGTERM)
    assert pool.wait() == 0
    status = lender.board.status(job)
    assert status.state is JobState.HELD
    [held] = lender.board.held(8)
    # it goes on from a checkpoint, not from the beginning
    assert held.storage is not None
    assert status.progress >= 3


def test_a_pool_ends_also_while_redis_is_away(start, lender, own_valkey, tmp_path):
    pool = start("pool", "cpu", url=own_valkey.url, NOIDLE_GRACE_S="0.1")
    until(lambda: "ready" in pool.log.read_text(), "the pool is up")
    own_valkey.kill()
    pool.signal(signal.SIGTERM)
    assert pool.wait() == 0


def test_celerys_shutdown_command_is_an_orderly_end_too(start, lender, valkey_url):
    pool = start("pool", "cpu", NOIDLE_SLOTS="2", NOIDLE_GRACE_S="0.1")
    router = start("router", "router@here")
    lender.wait_for(POOL)
    job = lender.accept(**LONG)
    moving(lender, job)
    with Celery("admin", broker=valkey_url, set_as_current=False) as admin:
        admin.control.shutdown(destination=[POOL])
        assert pool.wait() == 0
        assert lender.board.status(job).state is JobState.HELD
        admin.control.shutdown(destination=["router@here"])
        assert router.wait() == 0


def test_a_second_pool_of_the_same_name_does_not_start(start, lender):
    first = start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    second = start("pool", "cpu", NOIDLE_SLOTS="1")
    assert second.wait() != 0
    assert "a pool named cpu@here is in this cluster already" in second.log.read_text()
    assert first.running()
    assert lender.result(lender.run(POOL)).attempt == 1
