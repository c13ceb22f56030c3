"""A client and a pool that tests move by hand, on one empty Valkey."""

from collections.abc import Iterator

import pytest

from noidle import Client
from tests.integration.noidle.hand_pool import HandPool


@pytest.fixture
def client(valkey_url: str) -> Iterator[Client]:
    with Client(valkey_url) as client:
        yield client


@pytest.fixture
def pool(valkey_url: str) -> Iterator[HandPool]:
    pool = HandPool(valkey_url)
    yield pool
    pool.redis.close()
