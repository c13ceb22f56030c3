"""Worker processes that end with their test."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis

from noidle.connection import connect
from routing.redis_board import RedisBoard
from tests.integration.workers.lender import Lender
from tests.integration.workers.processes import WorkerProcess

Start = Callable[..., WorkerProcess]


@pytest.fixture
def start(tmp_path: Path, valkey_url: str) -> Iterator[Start]:
    """Starts a worker: `start("pool", "cpu", NOIDLE_SLOTS="2")`."""
    started: list[WorkerProcess] = []

    def begin(*arguments: str, url: str = valkey_url, **settings: str) -> WorkerProcess:
        process = WorkerProcess(tmp_path, url, *arguments, **settings)
        started.append(process)
        return process

    yield begin
    for process in started:
        process.end()


@pytest.fixture
def lender(valkey_url: str) -> Iterator[Lender]:
    with connect(valkey_url) as client:
        yield Lender(RedisBoard(client))


@pytest.fixture
def valkey_client(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client
