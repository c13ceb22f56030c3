"""A pool as a real process with a real engine program: from a lease to an end, whatever
happens to the engine."""

import base64
import json
import os
import signal

import pytest
from celery import Celery

from noidle import Client
from noidle.errors import JobFailed
from noidle.results import JobState
from routing.message import LEASED_HEADER
from tests.integration.workers.processes import until

POOL = "cpu@here"
LONG = {"prompt": "a long one", "max_tokens": 100_000}


def tokens_emitted(lender, job_id):
    status = lender.board.status(job_id)
    return status.progress if status else 0


def test_a_leased_job_ends_with_a_result_that_says_where_it_ran(start, lender):
    pool = start("pool", "cpu", NOIDLE_SLOTS="2")
    lender.wait_for(POOL)
    result = lender.result(lender.run(POOL, max_tokens=5, seed=7))
    assert (result.state, len(result.tokens), result.finish_reason) == ("done", 5, "length")
    assert (result.pool, result.host, result.engine) == (POOL, "here", "cpu")
    assert (result.attempt, result.seed, result.revision) == (1, 7, "built-in")
    assert result.device == "described rates (cpu)"
    assert result.stand_in is False
    # of the engine, which is another process than the worker
    assert result.pid != pool.pid
    times = result.times
    assert None not in (times.held_ms, times.queued_ms, times.total_ms, times.ttft_ms)


def test_a_run_past_its_deadline_ends_at_its_next_step_with_what_it_has(start, lender, valkey_url):
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    late = lender.accept(**LONG, deadline_s=1.0)
    lender.lease(late, POOL)
    result = lender.result(late)
    assert (result.state, result.error.code) == ("failed", "deadline")
    assert result.error.message.startswith("its deadline, 1 s after it was accepted, passed while")
    assert 0 < len(result.tokens) < LONG["max_tokens"]
    pieces = []
    with Client(valkey_url) as client, pytest.raises(JobFailed, match="deadline"):
        pieces.extend(client.job(late).stream())
    assert "".join(pieces) == result.text
    assert lender.board.loads() == {}
    app = Celery("reader", broker=valkey_url, backend=valkey_url, set_as_current=False)
    with pytest.raises(JobFailed, match="passed while it ran"):
        app.AsyncResult(late).get(timeout=5)
    app.close()
    # its slot takes another
    assert lender.result(lender.run(POOL, max_tokens=1)).state is JobState.DONE


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


def test_a_task_sent_to_the_queue_by_hand_becomes_a_job_that_wants_the_engine(
    start, lender, valkey_url
):
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    producer = Celery("producer", broker=valkey_url, backend=valkey_url, set_as_current=False)
    fields = {"model": "echo", "prompt": "by hand", "max_tokens": 3}
    producer.send_task("noidle.generate", kwargs=fields, task_id="hand", queue="cpu")
    until(lambda: lender.board.status("hand"), "the job is accepted")
    [held] = lender.board.held(8)
    assert (held.id, held.engine) == ("hand", "cpu")
    lender.lease("hand", POOL)
    assert lender.result("hand").state is JobState.DONE
    wrong = producer.send_task("noidle.score", args=[{"model": "echo"}], queue="cpu")
    assert "text" in lender.result(wrong.id).error.message
    producer.close()


def test_a_lease_of_another_pool_goes_on_to_that_pool(start, lender):
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    start("pool", "cpu", "1", NOIDLE_SLOTS="1")
    lender.wait_for("cpu.1@here")
    for _ in range(6):
        job = lender.accept(max_tokens=1)
        # both pools consume the engine's queue: half of these arrive at the wrong one
        lender.lease(job, "cpu.1@here", queue="cpu")
        result = lender.result(job)
        assert (result.pool, result.attempt) == ("cpu.1@here", 1)


def test_a_run_that_fails_ends_failed_and_the_pool_goes_on(start, lender):
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    failed = lender.result(lender.run(POOL, prompt="!fail 2", max_tokens=9))
    assert (failed.state, failed.error.code) == ("failed", "engine")
    assert lender.result(lender.run(POOL)).state is JobState.DONE


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


def test_a_running_job_that_is_cancelled_ends_at_its_next_step(start, lender, valkey_client):
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    job = lender.run(POOL, **LONG)
    until(lambda: tokens_emitted(lender, job) > 3, "the job moves")
    assert lender.board.cancel(job)
    assert lender.result(job).state is JobState.CANCELLED
    entry = json.loads(valkey_client.get(f"celery-task-meta-{job}"))
    assert entry["status"] == "REVOKED"
    # the slot is free again
    assert lender.result(lender.run(POOL)).state is JobState.DONE


def test_messages_that_cannot_be_read_harm_nobody(start, lender, valkey_client):
    pool = start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    job = lender.accept()
    lender.lease(job, POOL, queue="kept")
    good = json.loads(valkey_client.lindex("kept", 0))
    bodies = [b"3", b"[1]", b"{}", b"[[], 7, {}]", b"\xff\xfe"]
    broken = [{**good, "body": base64.b64encode(body).decode()} for body in bodies]
    broken += [{**good, "headers": headers} for headers in ({}, {LEASED_HEADER: True}, {"id": 3})]
    broken += [{**good, "content-type": "application/x-python-serialize"}, {}, [], 7, "x"]
    for message in broken:
        valkey_client.lpush(POOL, json.dumps(message))
    valkey_client.lpush(POOL, b"\x80 no JSON")
    valkey_client.lpush(POOL, json.dumps(good))
    assert lender.result(job).state is JobState.DONE
    assert pool.running()
