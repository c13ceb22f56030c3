"""What a plain Celery client sees of a job: the entry that Celery itself would have written."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import pytest
from celery import Celery
from celery.app.task import Context
from celery.exceptions import TaskRevokedError
from celery.result import AsyncResult, GroupResult

from noidle.errors import InvalidJob, JobFailed
from noidle.results import JobError, JobState
from noidle.script import SHARED
from routing.envelope import Envelope
from tests.contract.board_world import Cluster, RedisWorld, generate

# Celery's own way to store a result, for comparison
pytestmark = pytest.mark.filterwarnings("ignore:Call to deprecated setex:DeprecationWarning")


@pytest.fixture
def app(valkey_url: str) -> Iterator[Celery]:
    app = Celery("plain", broker=valkey_url, backend=valkey_url)
    yield app
    app.close()


@pytest.fixture
def cluster(valkey_url: str) -> Cluster:
    world = RedisWorld(valkey_url)
    return Cluster(world, world.board())


def entry(cluster: Cluster, job_id: str) -> dict[str, object]:
    assert isinstance(cluster.world, RedisWorld)
    return json.loads(cluster.world.client.get(f"celery-task-meta-{job_id}"))


def shape(found: dict[str, object]) -> dict[str, str]:
    return {name: type(value).__name__ for name, value in found.items()}


AROUND = Envelope(group="the-group", parent_id="the-parent", root_id="the-root")
REQUEST = Context(group="the-group", parent_id="the-parent", children=[])


def test_a_result_is_what_celery_would_have_stored(app: Celery, cluster: Cluster) -> None:
    app.backend.store_result("theirs", {"text": "x"}, "SUCCESS", request=REQUEST)
    cluster.board.accept(generate("ours"), AROUND)
    cluster.start("ours")
    cluster.finish("ours", text="日本")
    theirs, ours = entry(cluster, "theirs"), entry(cluster, "ours")
    assert shape(ours) == shape(theirs)
    varying = ("result", "date_done", "task_id")
    assert {k: v for k, v in ours.items() if k not in varying} == {
        k: v for k, v in theirs.items() if k not in varying
    }
    found = AsyncResult("ours", app=app)
    result = cluster.board.result("ours")
    assert result is not None
    assert found.get(timeout=5) == result.model_dump(mode="json", exclude_none=True)
    assert abs(found.date_done - datetime.now(UTC)) < timedelta(minutes=1)


def test_a_failure_is_what_celery_would_have_stored(app: Celery, cluster: Cluster) -> None:
    app.backend.store_result("theirs", JobFailed("out of memory"), "FAILURE", request=REQUEST)
    cluster.board.accept(generate("ours"), AROUND)
    cluster.start("ours")
    error = JobError(code="engine", message="out of memory")
    cluster.finish("ours", state=JobState.FAILED, error=error)
    theirs, ours = entry(cluster, "theirs"), entry(cluster, "ours")
    assert shape(ours) == shape(theirs)
    assert ours["result"] == theirs["result"]
    with pytest.raises(JobFailed, match="out of memory"):
        AsyncResult("ours", app=app).get(timeout=5)


@pytest.mark.parametrize("started", [False, True])
def test_a_cancelled_job_is_a_revoked_task(app: Celery, cluster: Cluster, started: bool) -> None:
    app.backend.mark_as_revoked("theirs", "terminated", request=Context(children=[]))
    cluster.accept(generate("ours"))
    if started:
        cluster.start("ours")
    cluster.board.cancel("ours")
    if started:
        cluster.finish("ours", state=JobState.CANCELLED)
    assert shape(entry(cluster, "ours")) == shape(entry(cluster, "theirs"))
    with pytest.raises(TaskRevokedError, match="cancelled"):
        AsyncResult("ours", app=app).get(timeout=5)


def test_an_expired_job_is_a_revoked_task_as_celery_has_it(app: Celery, cluster: Cluster) -> None:
    cluster.accept(generate("ours", expires_s=1))
    cluster.world.pass_time(2)
    cluster.held()
    with pytest.raises(TaskRevokedError, match="expired"):
        AsyncResult("ours", app=app).get(timeout=5)


def test_failures_made_by_the_board_reach_celery_too(app: Celery, cluster: Cluster) -> None:
    cluster.board.refuse("bad", None, JobError(code="invalid", message='kind = "x"'))
    cluster.accept(generate("big"))
    cluster.board.fail("big", JobError(code="unplaceable", message="no pool has room"))
    with pytest.raises(InvalidJob, match='kind = "x"'):
        AsyncResult("bad", app=app).get(timeout=5)
    with pytest.raises(JobFailed, match="no pool has room"):
        AsyncResult("big", app=app).get(timeout=5)


def test_who_waits_already_is_told_at_once(cluster: Cluster) -> None:
    """Celery's clients subscribe to the channel named like the key."""
    assert isinstance(cluster.world, RedisWorld)
    cluster.accept(generate("ours"))
    cluster.start("ours")
    with cluster.world.client.pubsub(ignore_subscribe_messages=True) as channel:
        channel.subscribe("celery-task-meta-ours")
        channel.get_message(timeout=5)
        cluster.finish("ours", text="x")
        message = channel.get_message(timeout=5)
        assert message is not None
        assert json.loads(message["data"]) == entry(cluster, "ours")


def test_a_group_joins_its_jobs(app: Celery, cluster: Cluster) -> None:
    for job in "ab":
        cluster.board.accept(generate(job), Envelope(group="g"))
        cluster.start(job)
        cluster.finish(job, text=job)
    group = GroupResult("g", [AsyncResult(job, app=app) for job in "ab"], app=app)
    assert [one["text"] for one in group.get(timeout=5)] == ["a", "b"]


def test_an_id_sent_again_forgets_its_former_entry(app: Celery, cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.board.cancel("a")
    cluster.accept(generate("a"))
    assert AsyncResult("a", app=app).state == "PENDING"


@pytest.mark.parametrize("moment_s", [0, 951_782_400, 1_709_210_096.5, 4_107_542_399])
def test_dates_are_right_whatever_the_year(cluster: Cluster, moment_s: float) -> None:
    assert isinstance(cluster.world, RedisWorld)
    base, ending = (SHARED / f"{part}.lua" for part in ("base", "ending"))
    text = f"{base.read_text()}\n{ending.read_text()}\nreturn iso_date(tonumber(ARGV[1]))"
    found = cluster.world.client.eval(text, 1, "noidle:", moment_s * 1000)
    assert datetime.fromisoformat(found) == datetime.fromtimestamp(moment_s, UTC)
