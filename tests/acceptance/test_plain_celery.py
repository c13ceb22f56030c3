"""Any Celery producer: jobs sent and read with nothing but Celery, and each of its features
carried through the router or refused in words."""

import base64
import json
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import redis
from celery import Celery, Signature, chain, chord, group
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult

from noidle import keys
from noidle.connection import connect
from noidle.errors import InvalidJob, JobFailed
from noidle.record import read_status
from noidle.results import JobState
from tests.integration.ops.commands import wait_for
from tests.integration.ops.local import Local

PATIENCE_S = 60


@pytest.fixture(scope="module")
def url(echo_cluster: Local) -> str:
    return echo_cluster.file.url


@pytest.fixture
def app(url: str) -> Iterator[Celery]:
    app = Celery("producer", broker=url, backend=url, set_as_current=False)
    yield app
    # else each result that is collected later opens a connection to sign off
    app.backend.result_consumer.stop()
    app.backend.result_consumer.subscribed_to.clear()
    app.backend.client.connection_pool.disconnect()
    app.close()


@pytest.fixture
def server(url: str) -> Iterator[redis.Redis]:
    with connect(url, max_connections=2) as client:
        yield client


def job(prompt: str = "to be or not", **fields: Any) -> dict[str, Any]:
    return {"kind": "generate", "model": "echo", "prompt": prompt, "max_tokens": 6, **fields}


def long_job() -> dict[str, Any]:
    """Runs for minutes."""
    return job(max_tokens=100_000)


def held_job() -> dict[str, Any]:
    """Waits for an engine that this cluster has not."""
    return job(engine="gpu")


def route(app: Celery, *args: Any, **options: Any) -> Signature:
    return app.signature("noidle.route", args=args, queue="route", **options)


def get(sent: AsyncResult) -> Any:
    return sent.get(timeout=PATIENCE_S)


def taken(server: redis.Redis, queue: str) -> dict[str, Any]:
    """The next message that somebody's own worker would take from `queue`."""
    found = wait_for(lambda: server.rpop(queue), f"a message in {queue}", PATIENCE_S)
    message = json.loads(cast(str, found))
    args, kwargs, _ = json.loads(base64.b64decode(message["body"]))
    return {"args": args, "kwargs": kwargs, "headers": message["headers"]}


def test_a_job_needs_nothing_but_celery(url: str, tmp_path: Path):
    script = Path(__file__).with_name("plain_producer.py")
    done = subprocess.run(
        [sys.executable, "-P", str(script), url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    told = json.loads(done.stdout)
    assert told["needed"] == []
    assert told["state"] == "SUCCESS"
    result = told["result"]
    assert result["id"] == told["id"]
    assert result["state"] == "done"
    assert len(result["tokens"]) == 6
    assert result["text"]
    assert (result["engine"], result["attempt"], result["finish_reason"]) == ("cpu", 1, "length")


def test_the_tasks_id_is_the_jobs_id_and_fields_may_be_keywords(app: Celery):
    name = f"mine-{uuid.uuid4().hex}"
    sent = app.send_task("noidle.route", kwargs=job(), queue="route", task_id=name)
    assert get(sent)["id"] == name


def test_a_task_id_that_comes_twice_is_one_job(app: Celery):
    name = uuid.uuid4().hex
    sent = [
        app.send_task("noidle.route", args=[job()], queue="route", task_id=name) for _ in range(3)
    ]
    results = [get(one) for one in sent]
    assert results[0] == results[1] == results[2]
    assert results[0]["attempt"] == 1


def test_what_the_router_has_taken_is_acknowledged(app: Celery, server: redis.Redis):
    get(app.send_task("noidle.route", args=[job()], queue="route"))
    wait_for(lambda: server.hlen(keys.unacked("routers")) == 0, "no message on its way")
    assert server.llen(keys.ROUTE_QUEUE) == 0


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ([job(prompt="")], "prompt = '': allowed is text of at least 1 character"),
        ([job(max_tokens=-1)], "max_tokens = -1: allowed is a whole number from 1 to 1000000"),
        ([job(engine="tpu")], "engine = 'tpu': allowed is cpu or hybrid or cuda or gpu"),
        ([job(model="nobody")], "model = 'nobody': allowed is "),
        ([job(max_token=3)], "max_token = 3: no such field; did you mean 'max_tokens'?"),
        ([job(id="another")], "id = 'another': allowed is absent, or the task's id"),
        (["x"], "job = ['x']: allowed is one object such as"),
        ([job(), job()], "allowed is one object such as"),
        ([], "kind is missing: allowed is generate or score or train"),
    ],
    ids=lambda part: str(part)[:50],
)
def test_a_wrong_job_is_refused_with_its_reason(app: Celery, wrong, message: str):
    sent = app.send_task("noidle.route", args=wrong, queue="route")
    with pytest.raises(InvalidJob) as caught:
        get(sent)
    assert message in str(caught.value)
    assert sent.state == "FAILURE"


def test_a_failure_in_the_engine_is_a_failure_of_the_task(app: Celery):
    with pytest.raises(JobFailed, match="the prompt asked to fail"):
        get(app.send_task("noidle.route", args=[job("!fail")], queue="route"))


def test_celerys_priorities_are_taken_for_none(app: Celery):
    sent = [
        app.send_task("noidle.route", args=[job()], queue="route", priority=priority)
        for priority in (0, 3, 6, 9)
    ]
    assert all(get(one)["state"] == "done" for one in sent)


def test_a_link_is_called_with_the_result(app: Celery, server: redis.Redis):
    note = app.signature("producer.note", args=["more"], queue="notes")
    sent = route(app, job()).apply_async(link=note)
    message = taken(server, "notes")
    assert message["args"] == [get(sent), "more"]
    assert message["headers"]["parent_id"] == sent.id
    assert server.llen("notes") == 0


def test_a_link_error_is_called_and_a_link_is_not(app: Celery, server: redis.Redis):
    note = app.signature("producer.note", queue="notes")
    rescue = app.signature("producer.rescue", queue="rescues")
    sent = route(app, job("!fail")).apply_async(link=note, link_error=rescue)
    message = taken(server, "rescues")
    assert message["args"] == [sent.id]
    assert server.llen("notes") == 0


def test_a_chain_of_jobs_runs_in_order(app: Celery):
    last = chain(route(app, job()), route(app, job("and then"), immutable=True)).apply_async()
    result = get(last)
    assert result["state"] == "done"
    first = last.parent
    assert first is not None
    assert get(first)["state"] == "done"
    assert first.id != last.id


def test_a_chain_goes_on_with_the_producers_own_task(app: Celery, server: redis.Redis):
    note = app.signature("producer.note", queue="notes")
    last = chain(route(app, job()), note).apply_async()
    assert taken(server, "notes")["args"] == [get(last.parent)]


def test_a_chain_ends_where_a_job_fails(app: Celery):
    last = chain(route(app, job("!fail")), route(app, job(), immutable=True)).apply_async()
    with pytest.raises(JobFailed, match="the prompt asked to fail"):
        get(last)


def test_a_job_that_would_take_the_former_ones_result_is_refused(app: Celery):
    """A result is no job: the second link of a chain must be immutable."""
    last = chain(route(app, job()), route(app, job())).apply_async()
    with pytest.raises(InvalidJob, match="allowed is one object such as"):
        get(last)


def test_a_group_gives_every_result_in_order(app: Celery):
    sent = group(route(app, job(f"part {n}", seed=n)) for n in range(12)).apply_async()
    results = sent.get(timeout=PATIENCE_S)
    assert [result["seed"] for result in results] == list(range(12))


def test_a_chord_calls_back_once_with_all_results(app: Celery, server: redis.Redis):
    note = app.signature("producer.note", queue="notes")
    header = [route(app, job(seed=n)) for n in range(5)]
    chord(header)(note)
    [results] = taken(server, "notes")["args"]
    assert sorted(result["seed"] for result in results) == list(range(5))
    assert server.llen("notes") == 0


def test_a_chord_may_end_in_a_job(app: Celery):
    header = [route(app, job()) for _ in range(3)]
    last = chord(header)(route(app, job("after all"), immutable=True))
    assert get(last)["state"] == "done"


def test_a_job_expires_where_it_cannot_start_in_time(app: Celery):
    sent = route(app, held_job()).apply_async(expires=0.3)
    with pytest.raises(TaskRevokedError):
        get(sent)
    assert sent.state == "REVOKED"


def test_a_job_that_starts_in_time_does_not_expire(app: Celery):
    expires = datetime.now(UTC) + timedelta(hours=1)
    assert get(route(app, job()).apply_async(expires=expires))["state"] == "done"


def test_a_delayed_start_is_refused(app: Celery):
    with pytest.raises(InvalidJob, match="allowed is absent: send the job when it may start"):
        get(route(app, job()).apply_async(countdown=5))


def test_revoke_ends_a_held_job_and_its_id_may_be_sent_again(app: Celery, echo_cluster: Local):
    sent = route(app, held_job()).apply_async()
    wait_for(lambda: _state(echo_cluster, sent.id) == JobState.HELD, "a held job")
    sent.revoke()
    with pytest.raises(TaskRevokedError):
        get(sent)
    app.send_task("noidle.route", args=[job()], queue="route", task_id=sent.id)
    # a handle keeps the first end that it sees
    wait_for(lambda: AsyncResult(sent.id, app=app).state == "SUCCESS", "the second try")


@pytest.mark.parametrize("terminate", [False, True])
def test_revoke_ends_a_running_job_at_its_next_step(
    app: Celery, echo_cluster: Local, terminate: bool
):
    sent = route(app, long_job()).apply_async()
    wait_for(lambda: _state(echo_cluster, sent.id) == JobState.RUNNING, "a running job")
    sent.revoke(terminate=terminate)
    with pytest.raises(TaskRevokedError):
        get(sent)
    assert _state(echo_cluster, sent.id) == JobState.CANCELLED


def _state(cluster: Local, job_id: str) -> JobState | None:
    with connect(cluster.file.url, max_connections=1) as client:
        status = read_status(client, job_id)
        return status.state if status else None
