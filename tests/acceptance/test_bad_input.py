"""A wrong job gets a clear answer wherever it is found out, and no process dies of it."""

from collections.abc import Iterator

import pytest

from noidle import Client, InvalidJob, JobFailed
from tests.integration.ops.local import Local

CONTEXT = 131_072


@pytest.fixture
def client(echo_cluster: Local) -> Iterator[Client]:
    """Checks that the processes outlive the test."""
    with Client(echo_cluster.file.url) as client:
        before = engine_pid(client)
        pids = echo_cluster.file.pids
        yield client
        assert engine_pid(client) == before
        assert echo_cluster.file.pids == pids


def engine_pid(client: Client) -> int | None:
    return client.generate("still there?", model="echo", max_tokens=2).result(timeout_s=60).pid


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"prompt": ""}, "prompt = '': allowed is text of at least 1 character"),
        ({"prompt": "x" * 10_000_000}, "at most 1048576 bytes of UTF-8, this has 10000000"),
        ({"prompt": "\ud800"}, "text that can be written as UTF-8"),
        ({"max_tokens": -5}, "max_tokens = -5: allowed is a whole number from 1 to 1000000"),
        ({"max_tokens": CONTEXT + 1}, f"max_tokens = 131073: allowed is 1 to {CONTEXT}"),
        ({"model": "nobody"}, "model = 'nobody': allowed is echo"),
        ({"engine": "tpu"}, "engine = 'tpu': allowed is cpu or hybrid or cuda or gpu"),
        ({"temperature": "warm"}, "temperature = 'warm': allowed is a number from 0 to 10"),
    ],
    ids=lambda part: next(iter(part)) if isinstance(part, dict) else None,
)
def test_a_wrong_job_is_refused_before_it_is_accepted(client: Client, fields, message: str):
    with pytest.raises(InvalidJob) as caught:
        client.submit({"kind": "generate", "model": "echo", "prompt": "x", **fields})
    assert message in str(caught.value)
    assert caught.value.field == next(iter(fields))


def test_what_only_the_engine_can_count_fails_the_job_with_the_limit(client: Client):
    prompt = "word " * (CONTEXT // 2 + 10)
    job = client.generate(prompt, model="echo", max_tokens=CONTEXT - 5)
    with pytest.raises(JobFailed) as caught:
        job.result(timeout_s=60)
    assert caught.value.reason in ("invalid", "unplaceable")
    assert str(CONTEXT) in str(caught.value) or "context" in str(caught.value)
    assert job.outcome().error is not None
