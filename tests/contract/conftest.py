"""Both boards under one name: every test that asks for `world` or `cluster` runs on each."""

import pytest

from tests.contract.board_world import Cluster, MemoryWorld, RedisWorld, World


@pytest.fixture(params=["memory", "redis"])
def world(request: pytest.FixtureRequest) -> World:
    if request.param == "memory":
        return MemoryWorld()
    return RedisWorld(request.getfixturevalue("valkey_url"))


@pytest.fixture
def cluster(world: World) -> Cluster:
    return Cluster(world, world.board())
