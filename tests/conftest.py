"""Fixtures for every level: a real Valkey on a loopback port. And how workers share a machine,
where pytest-xdist runs several."""

import logging
import os
import tempfile
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
import redis
from hypothesis import settings

from tests.turns import Turns
from tests.valkey_process import ValkeyProcess

# how long an example takes says more of the machine than of the code
settings.register_profile("noidle", deadline=None)
settings.load_profile("noidle")

# tests start some hundred processes, which need not compile the same files each
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
if "PYTEST_XDIST_WORKER" in os.environ:
    # before torch looks: each worker is to have one core
    os.environ.setdefault("OMP_NUM_THREADS", "1")

FOLDER = pytest.StashKey[tempfile.TemporaryDirectory[str]]()
TURNS = pytest.StashKey[Turns]()


def pytest_configure(config: pytest.Config) -> None:
    if folder := getattr(config, "workerinput", {}).get("turns"):
        config.stash[TURNS] = Turns(Path(folder))
    elif config.getoption("dist", "no") != "no":
        config.stash[FOLDER] = tempfile.TemporaryDirectory(prefix="noidle-turns-")
        config.add_cleanup(config.stash[FOLDER].cleanup)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Tells a worker where all of them take turns."""
    node.workerinput["turns"] = node.config.stash[FOLDER].name


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Those that run alone come last, when a worker that waits has nothing else to do."""
    items.sort(key=lambda item: item.get_closest_marker("alone") is not None)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    """Outside of everything that counts a test's time."""
    turns = item.config.stash.get(TURNS, None)
    alone = item.get_closest_marker("alone") is not None
    with turns.take(alone=alone) if turns else nullcontext():
        return (yield)


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
