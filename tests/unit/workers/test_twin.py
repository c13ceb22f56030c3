"""Two pools of one name."""

import pytest

from noidle.errors import ConfigError
from noidle.snapshot import PoolState
from tests.unit.workers.world import POOL, AwayBoard, World
from workers.twin import refuse_twin


@pytest.fixture
def world():
    return World()


def check(world, *, meanwhile=lambda: None, board=None):
    """Seconds waited."""
    waited = []

    def sleep(seconds):
        waited.append(seconds)
        world.clock.now_s += seconds
        meanwhile()

    refuse_twin(board or world.board, POOL, sleep=sleep)
    return sum(waited)


def test_a_name_that_nobody_has_is_free_at_once(world):
    world.board.leave(POOL)
    assert check(world) == 0


def test_a_name_that_somebody_publishes_under_is_refused(world):
    with pytest.raises(ConfigError, match="NOIDLE_HOST = 'here'"):
        check(world, meanwhile=world.publish)


def test_a_pool_that_was_killed_may_come_back(world):
    assert 1 < check(world) < 3


def test_a_pool_that_ends_is_no_twin(world):
    drain = {"state": PoolState.DRAINING}
    assert check(world, meanwhile=lambda: world.publish(**drain)) == pytest.approx(0.2)


def test_a_redis_that_is_away_stops_no_start(world):
    assert check(world, board=AwayBoard(world.board, fails=1)) == 0
