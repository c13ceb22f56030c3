"""Worker processes that end with their test."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
import redis

from noidle.connection import connect
from routing.redis_board import RedisBoard
from tests.integration.workers.lender import Lender
from tests.integration.workers.processes import WorkerProcess
from tests.valkey_process import ValkeyProcess

Start = Callable[..., WorkerProcess]


@contextmanager
def starting(folder: Path, url: str) -> Iterator[Start]:
    """Ends whatever it started."""
    started: list[WorkerProcess] = []

    def begin(*arguments: str, url: str = url, **settings: str) -> WorkerProcess:
        process = WorkerProcess(folder, url, *arguments, **settings)
        started.append(process)
        return process

    try:
        yield begin
    finally:
        for process in started:
            process.end()


@dataclass(frozen=True, slots=True, kw_only=True)
class Site:
    """A server whose workers outlive a test; nothing is flushed, so jobs need ids of their own."""

    url: str
    start: Start
    lender: Lender


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    server.start()
    try:
        with (
            connect(server.url) as client,
            starting(tmp_path_factory.mktemp("workers"), server.url) as start,
        ):
            yield Site(url=server.url, start=start, lender=Lender(RedisBoard(client)))
    finally:
        server.stop()


@pytest.fixture
def start(tmp_path: Path, valkey_url: str) -> Iterator[Start]:
    """Starts a worker: `start("pool", "cpu", NOIDLE_SLOTS="2")`."""
    with starting(tmp_path, valkey_url) as begin:
        yield begin


@pytest.fixture
def lender(valkey_url: str) -> Iterator[Lender]:
    with connect(valkey_url) as client:
        yield Lender(RedisBoard(client))


@pytest.fixture
def valkey_client(valkey_url: str) -> Iterator[redis.Redis]:
    with redis.Redis.from_url(valkey_url) as client:
        yield client
