"""Workers whose connections are cut, and workers whose Redis goes away: nothing runs twice,
nothing is lost, nobody exits."""

import time

from celery import Celery

from noidle.connection import connect
from routing.redis_board import RedisBoard
from tests.integration.workers.lender import Lender
from tests.integration.workers.processes import until

POOL = "cpu@here"
STEADY = {"prompt": "steady as she goes", "max_tokens": 300, "seed": 3}


def cut_all(client):
    for kind in ("normal", "pubsub"):
        client.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")


def send_all(url, count, **fields):
    producer = Celery("producer", broker=url, backend=url, set_as_current=False)
    ids = [f"sent-{number}" for number in range(count)]
    for job_id in ids:
        job = {"kind": "generate", "model": "echo", **fields}
        producer.send_task(
            "noidle.route", args=[job], task_id=job_id, queue="route", ignore_result=True
        )
    producer.close()
    return ids


def test_cut_connections_start_nothing_twice_and_end_no_worker(
    start, lender, valkey_url, valkey_client
):
    workers = [start("router", "router@here"), start("pool", "cpu", NOIDLE_SLOTS="4")]
    lender.wait_for(POOL)
    whole = lender.result(lender.accept(**STEADY))
    jobs = send_all(valkey_url, 24, **STEADY)
    cuts = 0
    while not all(lender.board.result(job) for job in jobs):
        cut_all(valkey_client)
        cuts += 1
        assert cuts < 300, "the jobs do not end"
        # the cuts are the load: between them something must get done
        time.sleep(0.15)
    assert cuts > 5
    results = [lender.board.result(job) for job in jobs]
    assert {result.text for result in results} == {whole.text}
    assert {result.attempt for result in results} == {1}
    assert all(worker.running() for worker in workers)
    # and they still take work
    assert lender.result(*send_all(valkey_url, 1, prompt="after", label="after")).attempt == 1


def test_a_redis_that_is_killed_and_comes_back_finds_the_same_runs(start, own_valkey):
    pool = start("pool", "cpu", url=own_valkey.url, NOIDLE_SLOTS="2", ECHO_STEP_S="0.02")
    with connect(own_valkey.url) as client:
        lender = Lender(RedisBoard(client))
        lender.wait_for(POOL)
        job = lender.run(POOL, prompt="steady", max_tokens=150, seed=3)
        until(lambda: lender.board.status(job).progress > 10, "the job moves")
        own_valkey.kill()
        own_valkey.start()
        result = lender.result(job)
        assert (result.attempt, len(result.tokens)) == (1, 150)
        lender.wait_for(POOL)
        assert lender.result(lender.run(POOL, seed=3)).attempt == 1
    assert pool.running()


def test_a_run_longer_than_the_visibility_timeout_runs_once(start, lender, valkey_client):
    """Redis gives back what is not acknowledged, also while its worker is fine; a lease's
    message is not among it."""
    start("pool", "cpu", NOIDLE_SLOTS="2", NOIDLE_VISIBILITY_S="1", ECHO_STEP_S="0.05")
    lender.wait_for(POOL)
    begun = valkey_client.time()[0]
    job = lender.run(POOL, prompt="slow", max_tokens=70)
    result = lender.result(job)
    assert valkey_client.time()[0] - begun >= 3
    assert (result.state, result.attempt, len(result.tokens)) == ("done", 1, 70)
    assert valkey_client.llen(POOL) == 0
    assert not [key for key in valkey_client.keys("noidle:unacked:*") if b"mutex" not in key]


def test_workers_wait_for_a_redis_that_is_not_there_yet(start, own_valkey):
    own_valkey.kill()
    pool = start("pool", "cpu", url=own_valkey.url, NOIDLE_SLOTS="1")
    router = start("router", "router@here", url=own_valkey.url)
    until(lambda: "Cannot connect" in pool.log.read_text(), "the pool has asked")
    own_valkey.start()
    with connect(own_valkey.url) as client:
        lender = Lender(RedisBoard(client))
        lender.wait_for(POOL)
        [job] = send_all(own_valkey.url, 1, prompt="at last")
        assert lender.result(job).attempt == 1
    assert pool.running()
    assert router.running()


def test_a_full_redis_costs_no_running_job(start, lender, valkey_client):
    """At its memory limit Redis refuses pushes, but runs scripts."""
    pool = start("pool", "cpu", NOIDLE_SLOTS="2", ECHO_STEP_S="0.02")
    lender.wait_for(POOL)
    job = lender.run(POOL, prompt="steady", max_tokens=60)
    until(lambda: lender.board.status(job).progress > 5, "the job moves")
    valkey_client.config_set("maxmemory", 1)
    try:
        result = lender.result(job)
    finally:
        valkey_client.config_set("maxmemory", 0)
    assert (result.attempt, len(result.tokens)) == (1, 60)
    assert lender.result(lender.run(POOL)).attempt == 1
    assert pool.running()


def test_a_router_at_a_full_redis_waits_and_loses_nothing(start, lender, valkey_url, valkey_client):
    jobs = send_all(valkey_url, 5, prompt="patient")
    valkey_client.config_set("maxmemory", 1)
    try:
        router = start("router", "router@here")
        until(lambda: "used memory" in router.log.read_text(), "Redis has refused")
    finally:
        valkey_client.config_set("maxmemory", 0)
    for job in jobs:
        until(lambda job=job: lender.board.status(job), f"{job} is accepted")
    assert router.running()
