"""Links of a job that goes the whole way: producer, router, pool, and what follows."""

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from celery import Celery, chain, chord

from tests.integration.routing.cluster import close_celery, until
from tests.integration.workers.processes import WorkerProcess

# Celery's producer leaves sockets to the garbage collector
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture
def app(valkey_url: str) -> Iterator[Celery]:
    app = Celery("producer", broker=valkey_url, backend=valkey_url, set_as_current=False)
    app.conf.task_routes = {"noidle.route": {"queue": "route"}}
    yield app
    close_celery(app)


@pytest.fixture
def client(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url, decode_responses=True) as client:
        yield client


@pytest.fixture
def cluster(valkey_url: str, tmp_path: Path) -> Iterator[None]:
    """A router and a pool with the echo engine."""
    workers = [
        WorkerProcess(tmp_path, valkey_url, "router", "router@here"),
        WorkerProcess(tmp_path, valkey_url, "pool", "cpu", NOIDLE_SLOTS="2"),
    ]
    yield
    for worker in workers:
        worker.end()


def job(app: Celery, text: str, **fields: Any) -> Any:
    body = {"kind": "generate", "model": "echo", "prompt": text, "max_tokens": 3, **fields}
    return app.signature("noidle.route", args=(body,), immutable=True)


def arguments(client: redis.Redis, queue: str) -> list[list[Any]]:
    """Of all tasks that lie in a queue nobody reads, the first sent first."""
    messages = [json.loads(str(message)) for message in client.lrange(queue, 0, -1)]
    bodies = [json.loads(base64.b64decode(message["body"])) for message in reversed(messages)]
    return [body[0] for body in bodies]


def test_a_link_is_sent_once_and_with_the_jobs_result(
    cluster: None, app: Celery, client: redis.Redis
) -> None:
    """A router's task that just returned made Celery send the links itself, with nothing in
    them, and store nothing as the job's result."""
    follows = app.signature("mine", queue="mine")
    answer = job(app, "hello").apply_async(link=follows).get(timeout=30)
    assert answer["state"] == "done"
    until(lambda: client.llen("mine") > 0, "the link is sent")
    # whatever follows this job was sent before what follows the next one
    job(app, "again").apply_async(link=app.signature("last", queue="last"))
    until(lambda: client.llen("last") > 0, "the next link is sent")
    ((sent,),) = arguments(client, "mine")
    assert sent["text"] == answer["text"]


def test_jobs_follow_each_other_in_a_chain(cluster: None, app: Celery, client: redis.Redis) -> None:
    chain(job(app, "a"), job(app, "b"), app.signature("mine", queue="mine")).apply_async()
    until(lambda: client.llen("mine") > 0, "the end of the chain is sent")
    ((sent,),) = arguments(client, "mine")
    assert sent["state"] == "done"


def test_a_chord_of_jobs_gets_their_results(
    cluster: None, app: Celery, client: redis.Redis
) -> None:
    chord([job(app, "a"), job(app, "b")])(app.signature("mine", queue="mine"))
    until(lambda: client.llen("mine") > 0, "the body is sent")
    ((sent,),) = arguments(client, "mine")
    assert [part["state"] for part in sent] == ["done", "done"]


def test_a_job_that_is_refused_calls_its_errback(
    cluster: None, app: Celery, client: redis.Redis
) -> None:
    bad = job(app, "a", max_tokens=-1)
    result = bad.apply_async(link_error=app.signature("mine", queue="mine"))
    until(lambda: client.llen("mine") > 0, "the errback is sent")
    assert arguments(client, "mine") == [[result.id]]


def test_a_job_that_would_get_a_result_as_argument_is_told_to_be_immutable(
    cluster: None, app: Celery
) -> None:
    mutable = job(app, "b").clone()
    mutable["immutable"] = False
    result = chain(job(app, "a"), mutable).apply_async()
    with pytest.raises(Exception, match=r"\.si\("):
        result.get(timeout=30)
