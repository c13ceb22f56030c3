"""Three ways to end a job mean the same: a held one ends at once, a running one at its next step,
and the same id can be sent again."""

from collections.abc import Callable, Iterator

import pytest
from celery import Celery
from celery.result import AsyncResult

from noidle import Client, JobCancelled, keys
from noidle.connection import connect
from noidle.handle import Job
from noidle.results import JobState
from tests.acceptance.fleet import generate, moves
from tests.integration.ops.commands import wait_for
from tests.integration.ops.local import Local

PATIENCE_S = 60.0
MINUTES = {"max_tokens": 100_000}
# an engine that this cluster has not
HELD = {"engine": "gpu"}


@pytest.fixture
def client(echo_cluster: Local) -> Iterator[Client]:
    with Client(echo_cluster.file.url) as client:
        yield client


def by_handle(cluster: Local, job: Job) -> None:
    assert job.cancel()


def by_celery(cluster: Local, job: Job) -> None:
    url = cluster.file.url
    with Celery("admin", broker=url, backend=url, set_as_current=False) as app:
        AsyncResult(job.id, app=app).revoke()


def by_flowers_button(cluster: Local, job: Job) -> None:
    cluster.ask_flower(f"/api/task/revoke/{job.id}", "POST")


End = Callable[[Local, Job], None]
every_way = pytest.mark.parametrize("end", [by_handle, by_celery, by_flowers_button])


@every_way
def test_a_held_job_ends_at_once(echo_cluster: Local, client: Client, end: End):
    job = client.submit(generate(**HELD))
    assert job.status().state is JobState.HELD
    end(echo_cluster, job)
    with pytest.raises(JobCancelled):
        job.result(timeout_s=PATIENCE_S)
    assert job.outcome().attempt == 0
    assert again(client, job.id).attempt == 1


@every_way
def test_a_running_job_ends_at_its_next_step(
    echo_cluster: Local, client: Client, end: End, report: Callable[[str], None]
):
    job = client.submit(generate(**MINUTES))
    wait_for(lambda: moves(job, 10), "a running job")
    end(echo_cluster, job)
    before = job.status().progress
    with pytest.raises(JobCancelled):
        job.result(timeout_s=PATIENCE_S)
    with pytest.raises(JobCancelled):
        list(job.stream(timeout_s=PATIENCE_S))
    status = job.status()
    assert status.state is JobState.CANCELLED
    with connect(echo_cluster.file.url) as server:
        # its slot is free
        assert not server.hexists(keys.pool_leases("cpu@box"), job.id)
        assert not server.zscore(keys.LEASES, job.id)
    report(f"{end.__name__}: {status.progress - before} tokens of a running job came after it")
    assert again(client, job.id).attempt == 1


def again(client: Client, job_id: str):
    """The same id, sent once more."""
    return client.submit(generate(id=job_id, seed=3)).result(timeout_s=PATIENCE_S)
