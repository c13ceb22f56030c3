"""What producers that have nothing but Celery get of a router and a pool, which all tests share."""

import uuid
from datetime import UTC, datetime, timedelta

import pytest
from celery.exceptions import TaskRevokedError

from noidle.errors import InvalidJob
from noidle.results import JobState
from tests.integration.workers.processes import until
from tests.integration.workers.producer import job, known, new_producer, send

POOL = "cpu@here"
ROUTER = "router@here"
# no pool of this cluster has it
HELD = {"engine": "gpu"}


@pytest.fixture(scope="module")
def cluster(site):
    site.start("router", ROUTER)
    site.start("pool", "cpu", NOIDLE_SLOTS="1")
    site.lender.wait_for(POOL)
    return site


@pytest.fixture
def lender(cluster):
    return cluster.lender


@pytest.fixture
def app(cluster):
    with new_producer(cluster.url) as producer:
        yield producer


def moves(lender, job_id):
    status = lender.board.status(job_id)
    return status and status.state is JobState.RUNNING and status.progress > 3


def test_a_job_sent_with_celery_alone_is_routed_and_answered(lender, app):
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
def test_a_job_that_cannot_be_accepted_gets_its_reason_as_result(app, args, options, words):
    with pytest.raises(InvalidJob, match=words.replace("(", r"\(")):
        send(app, *args, task_id=uuid.uuid4().hex, **options).get(timeout=20)


def test_expires_is_celerys_and_ends_the_job_as_revoked(lender, app):
    soon = datetime.now(UTC) + timedelta(seconds=0.5)
    for task_id, expires in (("past", datetime(2020, 1, 1, tzinfo=UTC)), ("soon", soon)):
        with pytest.raises(TaskRevokedError):
            send(app, job(**HELD), task_id=task_id, expires=expires).get(timeout=20)
        assert lender.board.result(task_id).state is JobState.EXPIRED


def test_revoke_ends_a_held_job_and_the_same_id_can_be_sent_again(cluster, lender, app):
    held = send(app, job(**HELD), task_id="again")
    assert known(lender, "again").state is JobState.HELD
    held.revoke()
    with pytest.raises(TaskRevokedError):
        held.get(timeout=20)
    with new_producer(cluster.url) as other:
        again = send(other, job(), task_id="again")
        # until it is accepted, the former result stands
        until(lambda: known(lender, "again").state is not JobState.CANCELLED, "accepted again")
        assert again.get(timeout=20)["state"] == "done"


def test_revoke_ends_a_running_job(cluster, lender, app):
    for again in range(2):
        with new_producer(cluster.url) as producer:
            running = send(producer, job(max_tokens=100_000), task_id="long")
            until(lambda: moves(lender, "long"), f"the job moves, time {again}")
            running.revoke(terminate=True)
            with pytest.raises(TaskRevokedError):
                running.get(timeout=20)
    assert send(app, job(), task_id="next").get(timeout=20)["state"] == "done"


def test_revoke_before_a_router_has_seen_the_job_ends_it_too(lender, app):
    """The message still lies in the queue: no job of this id is known yet."""
    app.control.revoke("early", destination=[ROUTER], reply=True, timeout=10)
    early = send(app, job(**HELD), task_id="early")
    until(lambda: lender.board.result("early"), "the job has ended")
    assert lender.board.result("early").state is JobState.CANCELLED
    # once: whoever sends it again means it
    send(app, job(**HELD), task_id="early")
    until(lambda: known(lender, "early").state is JobState.HELD, "the job is held")
    early.forget()
