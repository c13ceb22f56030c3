"""Fixtures for every level: a real Valkey on a loopback port."""

import logging
from collections.abc import Iterator

import pytest
import redis
from hypothesis import settings

from tests.valkey_process import ValkeyProcess

# how long an example takes says more of the machine than of the code
settings.register_profile("noidle", deadline=None)
settings.load_profile("noidle")


@pytest.fixture(autouse=True)
def root_logging() -> Iterator[None]:
    """A Celery worker in a test's own process sets the root logger up for itself."""
    root = logging.getLogger()
    level, handlers = root.level, list(root.handlers)
    yield
    root.setLevel(level)
    root.handlers[:] = handlers


@pytest.fixture(scope="session")
def valkey_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """One server for the whole run; tests that hurt a server start their own."""
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()


@pytest.fixture
def valkey_url(valkey_server: ValkeyProcess) -> str:
    """The address of an empty database."""
    with redis.Redis.from_url(valkey_server.url) as client:
        client.flushall()
    return valkey_server.url


@pytest.fixture
def own_valkey(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyProcess]:
    """A server of the test's own, to be cut, killed and started again."""
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    server.start()
    yield server
    server.stop()
