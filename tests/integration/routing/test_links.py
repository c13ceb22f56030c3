"""What follows a job in Celery's own terms: real producers, a real worker for their tasks, and
messages for noidle.route whose jobs end as the test says."""

import base64
import json
import uuid
from collections.abc import Iterator
from typing import Any, cast

import pytest
import redis
from celery import Celery, chain, chord, group
from celery.contrib.testing.worker import start_worker
from celery.exceptions import ChordError, TaskRevokedError

from noidle import keys
from noidle.results import JobError, JobResult, JobState
from routing.envelope import Envelope
from routing.links import Links, sender_of
from tests.integration.routing.cluster import close_celery, until
from tests.valkey_process import ValkeyProcess
from workers.app import Role, make_app
from workers.settings import load_settings

PATIENCE_S = 20.0
pytestmark = [
    # Celery's backend calls what redis-py has renamed
    pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning"),
    # Celery's worker in a thread leaves its sockets to the garbage collector
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]


class World:
    """A producer whose worker runs what is not noidle's, and the links of a router."""

    def __init__(self, url: str) -> None:
        self.app = Celery("producer", broker=url, backend=url, set_as_current=False)
        self.app.conf.task_routes = {keys.ROUTE_TASK: {"queue": keys.ROUTE_QUEUE}}
        self.redis = redis.Redis.from_url(url, decode_responses=True)
        settings = load_settings({}, url=url)
        router = make_app(settings, Role.ROUTER, "router@a", (keys.ROUTE_QUEUE,))
        self.sender = sender_of(router)
        self.links = Links(self.sender)
        self.kept: list[Any] = []
        self.prefix = ""

        def keep(value: Any) -> None:
            self.kept.append(value)

        self.texts = self.app.task(texts, name="texts", shared=False)
        self.keep = self.app.task(keep, name="keep", shared=False)

    def close(self) -> None:
        close_celery(self.app, self.sender)
        self.redis.close()

    def named(self, name: str) -> str:
        return self.prefix + name

    def job(self, name: str) -> Any:
        """A signature for a job, as a producer without noidle's package writes it."""
        job = ({"kind": "generate"},)
        signature = self.app.signature(keys.ROUTE_TASK, args=job, immutable=True)
        return signature.set(task_id=self.named(name))

    def arrived(self) -> tuple[str, Envelope]:
        """The next message for noidle.route, read as a router reads it."""
        until(lambda: self.redis.llen(keys.ROUTE_QUEUE) > 0, "a job arrives")
        fields = json.loads(cast("str", self.redis.rpop(keys.ROUTE_QUEUE)))
        headers = fields["headers"]
        _, _, embed = json.loads(base64.b64decode(fields["body"]))
        return headers["id"], Envelope(
            link=embed["callbacks"] or [],
            link_error=embed["errbacks"] or [],
            chain=embed["chain"] or [],
            chord=embed["chord"],
            group=headers["group"],
            group_index=headers["group_index"],
            root_id=headers["root_id"],
            parent_id=headers["parent_id"],
        )

    def ends(self, state: JobState = JobState.DONE, text: str = "", times: int = 1) -> str:
        """The next job ends, as the board would tell it, and what follows is sent."""
        job_id, envelope = self.arrived()
        error = JobError(code="engine", message="it broke") if state is JobState.FAILED else None
        result = JobResult(id=job_id, state=state, text=text, error=error)
        for _ in range(times):
            self.links.send(result, envelope)
        return job_id.removeprefix(self.prefix)


def texts(results: Any) -> str:
    """A producer's own task: the texts of one result or several."""
    found = results if isinstance(results, list) else [results]
    return " ".join(result["text"] for result in found)


@pytest.fixture(scope="module")
def shared_world(valkey_server: ValkeyProcess) -> Iterator[World]:
    """One worker for all tests here: it takes a second to end."""
    world = World(valkey_server.url)
    world.redis.flushall()
    with start_worker(world.app, perform_ping_check=False, shutdown_timeout=20.0):
        yield world
    world.close()


@pytest.fixture
def world(shared_world: World) -> World:
    """With ids of its own, since Celery remembers results by id."""
    shared_world.prefix = f"{uuid.uuid4().hex[:6]}-"
    shared_world.kept.clear()
    shared_world.redis.delete(keys.ROUTE_QUEUE)
    return shared_world


def test_a_link_gets_the_result(world: World) -> None:
    world.job("job-1").apply_async(link=world.texts.s().set(task_id=world.named("follows")))
    world.ends(text="hello")
    assert world.app.AsyncResult(world.named("follows")).get(timeout=PATIENCE_S) == "hello"


def test_each_of_several_links_is_sent(world: World) -> None:
    links = [world.texts.s().set(task_id=world.named(f"follows-{i}")) for i in range(3)]
    world.job("job-1").apply_async(link=[*links[:2], group(links[2:])])
    world.ends(text="hello")
    for i in range(3):
        assert world.app.AsyncResult(world.named(f"follows-{i}")).get(timeout=PATIENCE_S) == "hello"


def test_a_chain_goes_on_with_the_result(world: World) -> None:
    result = chain(world.job("job-1"), world.texts.s(), world.keep.s()).apply_async()
    world.ends(text="hello")
    result.get(timeout=PATIENCE_S)
    assert world.kept == ["hello"]


def test_a_job_behind_a_job_comes_to_the_route_queue(world: World) -> None:
    result = chain(world.job("job-1"), world.job("job-2"), world.texts.s()).apply_async()
    assert world.ends(text="first") == "job-1"
    assert world.ends(text="second") == "job-2"
    assert result.get(timeout=PATIENCE_S) == "second"


def test_a_chord_of_jobs_gets_all_results_in_order(world: World) -> None:
    body = chord([world.job(f"job-{i}") for i in range(3)])(world.texts.s())
    for i in range(3):
        world.ends(text=f"text-{i}")
    assert body.get(timeout=PATIENCE_S) == "text-0 text-1 text-2"


def test_a_part_of_a_chord_that_is_sent_twice_counts_once(world: World) -> None:
    body = chord([world.job(f"job-{i}") for i in range(2)])(world.texts.s())
    world.ends(text="one", times=2)
    world.ends(text="two", times=2)
    assert body.get(timeout=PATIENCE_S) == "one two"


def test_a_chord_fails_when_a_job_of_it_fails(world: World) -> None:
    body = chord([world.job(f"job-{i}") for i in range(2)])(world.texts.s())
    world.ends(text="one")
    world.ends(JobState.FAILED)
    with pytest.raises(ChordError, match="it broke"):
        body.get(timeout=PATIENCE_S)


@pytest.mark.parametrize("state", [JobState.CANCELLED, JobState.EXPIRED])
def test_a_chord_fails_when_a_job_of_it_is_cancelled_or_expires(
    world: World, state: JobState
) -> None:
    body = chord([world.job(f"job-{i}") for i in range(2)])(world.texts.s())
    world.ends(text="one")
    world.ends(state)
    with pytest.raises(ChordError, match=state.value):
        body.get(timeout=PATIENCE_S)


def test_a_chord_inside_a_chain_goes_on_after_its_body(world: World) -> None:
    whole = chain(
        group(world.job(f"job-{i}") for i in range(2)), world.texts.s(), world.keep.s()
    ).apply_async()
    world.ends(text="one")
    world.ends(text="two")
    whole.get(timeout=PATIENCE_S)
    assert world.kept == ["one two"]


def test_an_errback_is_called_with_the_id_of_the_job_that_failed(world: World) -> None:
    world.job("job-1").apply_async(link_error=world.keep.s(), link=world.texts.s())
    world.ends(JobState.FAILED)
    until(lambda: world.kept == [world.named("job-1")], "the errback runs")


def test_the_rest_of_a_chain_fails_with_the_job(world: World) -> None:
    result = chain(world.job("job-1"), world.texts.s(), world.keep.s()).apply_async()
    world.ends(JobState.FAILED)
    with pytest.raises(Exception, match="it broke"):
        result.get(timeout=PATIENCE_S, propagate=True)
    assert world.kept == []


def test_the_rest_of_a_chain_ends_when_the_job_is_cancelled(world: World) -> None:
    """Celery itself would leave whoever waits for the chain waiting for ever."""
    result = chain(world.job("job-1"), world.texts.s()).apply_async()
    world.ends(JobState.CANCELLED)
    with pytest.raises(TaskRevokedError):
        result.get(timeout=PATIENCE_S)


def test_what_cannot_be_sent_is_left_and_said(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    broken = Envelope(link=[{"no": "signature"}])
    world.links.send(JobResult(id="job-1", state=JobState.DONE), broken)
    assert "what follows job job-1 could not be sent" in caplog.text


def test_sending_subscribes_to_nothing(world: World) -> None:
    """Celery's senders subscribe to each result, which a router never reads."""
    for number in range(5):
        world.job(f"job-{number}").apply_async(link=world.keep.s().set(queue="nobody"))
    before = len(world.redis.pubsub_channels("celery-task-meta-*"))
    for _ in range(5):
        world.ends()
    assert world.redis.llen("nobody") == 5
    assert len(world.redis.pubsub_channels("celery-task-meta-*")) == before
