"""A router as a real process, for producers that have nothing but Celery."""

import json
import signal
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery
from celery.exceptions import TaskRevokedError

from noidle import keys
from noidle.errors import InvalidJob
from noidle.results import JobState
from tests.integration.workers.processes import until

POOL = "cpu@here"
ROUTER = "router@here"


@contextmanager
def new_producer(url):
    """What any producer has. A new one for an id that is sent again: Celery's client may take
    what it heard of the first job for the second's."""
    producer = Celery("producer", broker=url, backend=url, set_as_current=False)
    yield producer
    producer.close()


@pytest.fixture
def app(valkey_url):
    with new_producer(valkey_url) as producer:
        yield producer


def job(**fields):
    return {"kind": "generate", "model": "echo", "prompt": "one two three", **fields}


def send(app, *args, task_id, kwargs=None, **options):
    return app.send_task(
        "noidle.route", args=args, kwargs=kwargs, task_id=task_id, queue="route", **options
    )


def known(lender, job_id):
    until(lambda: lender.board.status(job_id), f"{job_id} is known")
    return lender.board.status(job_id)


def moves(lender, job_id):
    status = lender.board.status(job_id)
    return status and status.state is JobState.RUNNING and status.progress > 3


def settled(client):
    """No message waits or is under way."""
    return not client.exists("route", keys.taken(ROUTER), keys.unacked("routers"))


def test_a_job_sent_with_celery_alone_is_routed_and_answered(start, lender, app):
    start("router", ROUTER)
    start("pool", "cpu", NOIDLE_SLOTS="2")
    lender.wait_for(POOL)
    answer = send(app, job(max_tokens=4), task_id="one").get(timeout=20)
    assert (answer["id"], answer["state"], len(answer["tokens"])) == ("one", "done", 4)
    answer = send(app, task_id="two", kwargs=job(max_tokens=4)).get(timeout=20)
    assert (answer["id"], answer["pool"]) == ("two", POOL)
    # messages that went to the list of another Celery priority
    assert send(app, job(), task_id="three", priority=6).get(timeout=20)["state"] == "done"


@pytest.mark.parametrize(
    ("args", "options", "words"),
    [
        ([job(max_tokens=-1)], {}, "max_tokens = -1"),
        ([job(max_token=1)], {}, "did you mean"),
        ([job(id="other")], {}, "id = 'other': allowed is absent, or the task's id"),
        ([7], {}, "job = "),
        ([job(), job()], {}, "job = "),
        ([], {}, "kind is missing"),
        ([job()], {"countdown": 60}, "eta = "),
    ],
    ids=lambda value: str(value)[:30],
)
def test_a_job_that_cannot_be_accepted_gets_its_reason_as_result(
    start, lender, app, args, options, words
):
    start("router", ROUTER)
    with pytest.raises(InvalidJob, match=words.replace("(", r"\(")):
        send(app, *args, task_id="bad", **options).get(timeout=20)


def test_expires_is_celerys_and_ends_the_job_as_revoked(start, lender, app):
    start("router", ROUTER)
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    for task_id, expires in (("past", datetime(2020, 1, 1, tzinfo=UTC)), ("soon", soon)):
        with pytest.raises(TaskRevokedError):
            send(app, job(), task_id=task_id, expires=expires).get(timeout=20)
        assert lender.board.result(task_id).state is JobState.EXPIRED


def test_revoke_ends_a_held_job_and_the_same_id_can_be_sent_again(start, lender, app, valkey_url):
    start("router", ROUTER)
    held = send(app, job(), task_id="again")
    assert known(lender, "again").state is JobState.HELD
    held.revoke()
    with pytest.raises(TaskRevokedError):
        held.get(timeout=20)
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    with new_producer(valkey_url) as other:
        again = send(other, job(), task_id="again")
        # until it is accepted, the former result stands
        until(lambda: known(lender, "again").state is not JobState.CANCELLED, "accepted again")
        assert again.get(timeout=20)["state"] == "done"


def test_revoke_ends_a_running_job(start, lender, app, valkey_url):
    start("router", ROUTER)
    start("pool", "cpu", NOIDLE_SLOTS="1")
    lender.wait_for(POOL)
    for again in range(2):
        with new_producer(valkey_url) as producer:
            running = send(producer, job(max_tokens=100_000), task_id="long")
            until(lambda: moves(lender, "long"), f"the job moves, time {again}")
            running.revoke(terminate=True)
            with pytest.raises(TaskRevokedError):
                running.get(timeout=20)
    assert send(app, job(), task_id="next").get(timeout=20)["state"] == "done"


def test_revoke_before_a_router_has_seen_the_job_ends_it_too(start, lender, app):
    """The message still lies in the queue: no job of this id is known yet."""
    router = start("router", ROUTER)
    until(lambda: "ready" in router.log.read_text(), "the router is up")
    app.control.revoke("early", destination=[ROUTER], reply=True, timeout=10)
    early = send(app, job(), task_id="early")
    until(lambda: lender.board.result("early"), "the job has ended")
    assert lender.board.result("early").state is JobState.CANCELLED
    # once: whoever sends it again means it
    send(app, job(), task_id="early")
    until(lambda: known(lender, "early").state is JobState.HELD, "the job is held")
    early.forget()


def test_messages_of_a_router_that_died_between_taking_and_noting_come_back(
    start, lender, app, valkey_client
):
    send(app, job(), task_id="own")
    send(app, job(), task_id="others")
    assert valkey_client.lmove("route", keys.taken(ROUTER), "RIGHT", "LEFT")
    assert valkey_client.lmove("route", keys.taken("gone@there"), "RIGHT", "LEFT")
    valkey_client.zadd(keys.TAKEN, {keys.taken("gone@there"): 1})
    start("router", ROUTER)
    known(lender, "own")
    known(lender, "others")
    until(lambda: settled(valkey_client), "nothing is left")
    assert not valkey_client.exists(keys.taken("gone@there"))


def test_messages_that_cannot_be_read_harm_no_router(start, lender, app, valkey_client):
    send(app, job(), task_id="good")
    good = json.loads(valkey_client.lindex("route", 0))
    for message in ({**good, "body": "W10="}, {**good, "headers": {}}, {}, [], 7):
        valkey_client.rpush("route", json.dumps(message))
    valkey_client.rpush("route", b"\x80")
    router = start("router", ROUTER)
    known(lender, "good")
    until(lambda: settled(valkey_client), "nothing is left")
    assert router.running()


def test_a_router_that_is_told_to_end_leaves_nothing_under_way(start, lender, app, valkey_client):
    router = start("router", ROUTER)
    for number in range(50):
        send(app, job(), task_id=f"flood-{number}", ignore_result=True)
    until(lambda: lender.board.status("flood-5"), "the router is in the middle")
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    accepted = sum(lender.board.status(f"flood-{number}") is not None for number in range(50))
    assert accepted + valkey_client.llen("route") == 50
    assert not valkey_client.exists(keys.taken(ROUTER), keys.unacked("routers"))
    assert lender.board.take_pump("next") is not None
