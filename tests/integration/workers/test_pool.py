"""A pool as a real process with a real engine program, whatever happens to the engine."""

import os
import signal

from noidle.results import JobState
from tests.integration.workers.processes import until

POOL = "cpu@here"
LONG = {"prompt": "a long one", "max_tokens": 100_000}


def tokens_emitted(lender, job_id):
    status = lender.board.status(job_id)
    return status.progress if status else 0


def test_a_message_that_comes_twice_runs_once(start, lender, valkey_client):
    start("pool", "cpu", NOIDLE_SLOTS="4")
    lender.wait_for(POOL)
    job = lender.accept(**LONG)
    lender.lease(job, POOL, queue="kept")
    message = valkey_client.lindex("kept", 0)
    for _ in range(3):
        valkey_client.lpush(POOL, message)
    until(lambda: tokens_emitted(lender, job) > 3, "the job moves")
    # a stale claim is refused: the one run goes on, under the first attempt
    lender.board.cancel(job)
    assert (lender.result(job).state, lender.result(job).attempt) == ("cancelled", 1)


def test_a_crash_of_the_engine_hands_its_run_back_and_the_engine_comes_again(start, lender):
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    job = lender.run(POOL, prompt="!crash", max_tokens=9)
    until(lambda: lender.board.status(job).crashes == 1, "the crash is counted")
    assert lender.board.status(job).state is JobState.HELD
    lender.wait_for(POOL)
    assert lender.result(lender.run(POOL)).state is JobState.DONE


def test_a_run_that_hangs_costs_its_engine_its_life(start, lender):
    start("pool", "cpu", NOIDLE_SLOTS="1", NOIDLE_LEASE_S="1")
    lender.wait_for(POOL)
    job = lender.run(POOL, prompt="!hang", max_tokens=9)
    until(lambda: lender.board.status(job).state is JobState.HELD, "the job is held again")
    assert lender.board.status(job).crashes == 1
    lender.wait_for(POOL)
    after = lender.run(POOL)

    def done() -> bool:
        state = lender.board.status(after).state
        # a lease of one second may end while the new engine starts
        if state is JobState.HELD:
            lender.lease(after, POOL)
        return state is JobState.DONE

    until(done, "a job that the new engine did")


def test_a_killed_engine_loses_no_token(start, lender):
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    whole = lender.result(lender.run(POOL, seed=1, max_tokens=60))
    job = lender.run(POOL, seed=1, max_tokens=60)
    until(lambda: tokens_emitted(lender, job) > 5, "the job moves")
    [detail] = lender.board.details()
    os.kill(next(one.pid for one in detail.processes if one.name == "engine"), signal.SIGKILL)
    until(lambda: lender.board.status(job).state is JobState.HELD, "the job is held again")
    lender.wait_for(POOL)
    lender.lease(job, POOL)
    result = lender.result(job)
    assert (result.text, result.tokens, result.attempt) == (whole.text, whole.tokens, 2)
