"""The message the lease script pushes is one that Celery itself could have sent."""

import base64
import json
import threading
from typing import Any, cast

import pytest
import redis
from celery import Celery
from celery.contrib.testing.worker import start_worker

from routing.message import LEASED_HEADER, lease_message

QUEUE = "cpu@host-1"
SHOWN = "{'model': 'mini'}"
# what a sender draws anew for each message, or reads from its own process
DRAWN = {("properties", "delivery_tag"), ("properties", "reply_to"), ("headers", "origin")}


@pytest.fixture
def app(valkey_url: str) -> Celery:
    return Celery(broker=valkey_url, backend=valkey_url, set_as_current=False)


def ours() -> str:
    return lease_message(
        job_id="job-1",
        kind="generate",
        token="secret-token",
        queue=QUEUE,
        origin="router@host-1",
        shown=SHOWN,
    )


def celerys(app: Celery, url: str) -> str:
    def generate(lease: str) -> None: ...

    task = app.task(generate, name="noidle.generate", ignore_result=True, shared=False)
    task.apply_async(
        kwargs={"lease": "secret-token"},
        task_id="job-1",
        queue=QUEUE,
        argsrepr="()",
        kwargsrepr=SHOWN,
    )
    with redis.Redis.from_url(url, decode_responses=True) as client:
        return cast("str", client.rpop(QUEUE))


def decoded(message: str) -> dict[str, Any]:
    fields = json.loads(message)
    fields["body"] = json.loads(base64.b64decode(fields["body"]))
    return cast("dict[str, Any]", fields)


def test_every_field_is_what_celery_would_have_written(app: Celery, valkey_url: str) -> None:
    mine, theirs = decoded(ours()), decoded(celerys(app, valkey_url))
    # Celery repeats these options beside its headers, where no worker reads them
    for option in ("argsrepr", "kwargsrepr"):
        theirs["properties"].pop(option)
    for part, field in DRAWN:
        assert type(mine[part].pop(field)) is type(theirs[part].pop(field))
    # the one field of our own
    assert mine["headers"].pop(LEASED_HEADER) is True
    assert mine == theirs


def test_each_message_has_its_own_delivery_tag() -> None:
    assert (
        decoded(ours())["properties"]["delivery_tag"]
        != decoded(ours())["properties"]["delivery_tag"]
    )


def test_the_token_is_not_among_what_flower_shows() -> None:
    assert "secret-token" not in json.dumps(decoded(ours())["headers"])


def test_a_celery_worker_runs_it_once_and_stores_no_result(app: Celery, valkey_url: str) -> None:
    seen: list[tuple[str, str]] = []
    done = threading.Event()

    def run(task: Any, lease: str) -> None:
        seen.append((task.request.id, lease))
        if task.request.id == "job-2":
            done.set()

    app.task(run, name="noidle.generate", bind=True, shared=False)
    app.conf.task_queues = ()
    app.amqp.queues.select_add(QUEUE)
    with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
        client.lpush(QUEUE, ours(), ours().replace("job-1", "job-2"))
        with start_worker(app, perform_ping_check=False, shutdown_timeout=20.0):
            assert done.wait(20)
        assert seen == [("job-1", "secret-token"), ("job-2", "secret-token")]
        assert client.llen(QUEUE) == 0
        assert not client.keys("celery-task-meta-*")
