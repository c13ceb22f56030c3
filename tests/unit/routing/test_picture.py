"""How what many pools say anew reaches the policy."""

from noidle.snapshot import PoolSnapshot, PoolState
from routing.memory_board import MemoryBoard
from routing.picture import NEWS_A_LOOK, SNAPSHOTS_S, Picture
from tests.unit.routing.builders import make_pool

POOLS = 3 * NEWS_A_LOOK
NOW_S = 1_800_000_000.0


class Scene:
    """More pools than are weighed in one look, which all spoke once."""

    def __init__(self) -> None:
        self.now_s = NOW_S
        self.board = MemoryBoard(clock=lambda: self.now_s)
        self.picture = Picture(self.board, lambda: self.now_s)
        self.speak(slots=4)
        self.look()

    def speak(self, **fields: object) -> None:
        for number in range(POOLS):
            self.board.publish(make_pool(f"cpu@h{number:03d}", **fields))

    def look(self) -> tuple[PoolSnapshot, ...]:
        return self.picture.cluster({}).pools

    def later(self) -> None:
        self.now_s += SNAPSHOTS_S


def count(pools: tuple[PoolSnapshot, ...], free_bytes: int) -> int:
    return sum(pool.memory_free_bytes == free_bytes for pool in pools)


def test_what_many_pools_say_anew_is_weighed_a_part_a_look() -> None:
    scene = Scene()
    scene.later()
    scene.speak(slots=4, memory_free_bytes=1)
    seen = [count(scene.look(), 1) for _ in range(4)]
    assert seen == [NEWS_A_LOOK, 2 * NEWS_A_LOOK, POOLS, POOLS]


def test_a_pool_that_takes_nothing_any_more_is_known_for_it_at_once() -> None:
    scene = Scene()
    scene.later()
    scene.speak(slots=4, memory_free_bytes=1, state=PoolState.DRAINING)
    assert {pool.state for pool in scene.look()} == {PoolState.DRAINING}


def test_news_are_put_off_to_the_next_reading_at_most() -> None:
    scene = Scene()
    for free_bytes in (1, 2, 3):
        scene.later()
        scene.speak(slots=4, memory_free_bytes=free_bytes)
        pools = scene.look()
    # those put off by the second reading are taken in by the third
    assert count(pools, 1) == 0
    assert all(pool.memory_free_bytes for pool in pools)
