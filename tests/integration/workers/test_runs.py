"""A pool as a real process with a real engine program: from a lease to an end. All tests share it;
its one slot is free again after each."""

import base64
import json

import pytest
import redis
from celery import Celery

from noidle import Client
from noidle.errors import JobFailed
from noidle.results import JobState
from routing.message import LEASED_HEADER
from tests.integration.workers.processes import until

POOL = "cpu@here"
LONG = {"prompt": "a long one", "max_tokens": 100_000}


@pytest.fixture(scope="module")
def pool(site):
    process = site.start("pool", "cpu", NOIDLE_SLOTS="1")
    site.lender.wait_for(POOL)
    return process


@pytest.fixture
def lender(site, pool):
    return site.lender


def tokens_emitted(lender, job_id):
    status = lender.board.status(job_id)
    return status.progress if status else 0


@pytest.fixture
def valkey_client(site):
    with redis.Redis.from_url(site.url) as client:
        yield client


def test_a_leased_job_ends_with_a_result_that_says_where_it_ran(pool, lender):
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


def test_a_run_past_its_deadline_ends_at_its_next_step_with_what_it_has(site, lender):
    late = lender.accept(**LONG, deadline_s=1.0)
    lender.lease(late, POOL)
    result = lender.result(late)
    assert (result.state, result.error.code) == ("failed", "deadline")
    assert result.error.message.startswith("its deadline, 1 s after it was accepted, passed while")
    assert 0 < len(result.tokens) < LONG["max_tokens"]
    pieces = []
    with Client(site.url) as client, pytest.raises(JobFailed, match="deadline"):
        pieces.extend(client.job(late).stream())
    assert "".join(pieces) == result.text
    assert lender.board.loads() == {}
    app = Celery("reader", broker=site.url, backend=site.url, set_as_current=False)
    with pytest.raises(JobFailed, match="passed while it ran"):
        app.AsyncResult(late).get(timeout=5)
    app.close()
    # its slot takes another
    assert lender.result(lender.run(POOL, max_tokens=1)).state is JobState.DONE


def test_a_task_sent_to_the_queue_by_hand_becomes_a_job_that_wants_the_engine(site, lender):
    producer = Celery("producer", broker=site.url, backend=site.url, set_as_current=False)
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


def test_a_lease_of_another_pool_goes_on_to_that_pool(site, start, lender):
    start("pool", "cpu", "1", url=site.url, NOIDLE_SLOTS="1")
    lender.wait_for("cpu.1@here")
    for _ in range(6):
        job = lender.accept(max_tokens=1)
        # both pools consume the engine's queue: half of these arrive at the wrong one
        lender.lease(job, "cpu.1@here", queue="cpu")
        result = lender.result(job)
        assert (result.pool, result.attempt) == ("cpu.1@here", 1)


def test_a_run_that_fails_ends_failed_and_the_pool_goes_on(lender):
    failed = lender.result(lender.run(POOL, prompt="!fail 2", max_tokens=9))
    assert (failed.state, failed.error.code) == ("failed", "engine")
    assert lender.result(lender.run(POOL)).state is JobState.DONE


def test_a_running_job_that_is_cancelled_ends_at_its_next_step(lender, valkey_client):
    job = lender.run(POOL, **LONG)
    until(lambda: tokens_emitted(lender, job) > 3, "the job moves")
    assert lender.board.cancel(job)
    assert lender.result(job).state is JobState.CANCELLED
    entry = json.loads(valkey_client.get(f"celery-task-meta-{job}"))
    assert entry["status"] == "REVOKED"
    # the slot is free again
    assert lender.result(lender.run(POOL)).state is JobState.DONE


def test_messages_that_cannot_be_read_harm_nobody(pool, lender, valkey_client):
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
