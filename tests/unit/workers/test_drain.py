"""The order in which a pool ends."""

import os
import signal

import pytest

from tests.unit.workers.world import POOL, AwayBoard, World
from workers.drain import Drain
from workers.runs import Ending, Outcome

BACK = Outcome(ending=Ending.HANDED_BACK)


class Parts:
    """A pool that writes down what it is told; `ends` is called before it is told to end."""

    def __init__(self, world):
        self.world = world
        self.told = []

    def refuse_work(self):
        self.told.append("refuse work")

    def stop_consuming(self):
        self.told.append("stop consuming")

    def hand_back(self, wait_s):
        self.told.append(("hand back", wait_s))
        for run in self.world.runs.all():
            self.world.runs.end(run, BACK)

    def end(self):
        self.told.append("end")


def drained(world, parts, *, grace_s, board=None, numbers=(signal.SIGTERM,)):
    drain = Drain(
        parts,
        board or world.board,
        world.runs,
        pool=POOL,
        grace_s=grace_s,
        leave=lambda code: parts.told.append(("left", code)),
    )
    for number in numbers:
        os.write(drain._handler_end, bytes([number]))
    while "end" not in parts.told:
        pass
    return parts.told


@pytest.fixture
def world():
    return World()


def test_a_pool_without_runs_ends_at_once(world):
    unclaimed, _ = world.leased()
    told = drained(world, Parts(world), grace_s=600)
    assert told == ["refuse work", "stop consuming", "end"]
    assert world.state(unclaimed) == "held"


def test_runs_that_end_in_the_grace_are_not_handed_back(world):
    run = world.claimed()

    class Ends(Parts):
        def stop_consuming(self):
            super().stop_consuming()
            world.runs.end(run, BACK)

    assert drained(world, Ends(world), grace_s=600) == ["refuse work", "stop consuming", "end"]


def test_runs_that_do_not_end_in_the_grace_get_a_last_word(world):
    world.claimed()
    told = drained(world, Parts(world), grace_s=0)
    assert told == ["refuse work", "stop consuming", ("hand back", 2.0), "end"]


@pytest.mark.parametrize("numbers", [[signal.SIGQUIT], [signal.SIGTERM, signal.SIGINT]])
def test_who_hurries_gets_everything_back_without_a_last_word(world, numbers):
    world.claimed()
    told = drained(world, Parts(world), grace_s=600, numbers=numbers)
    assert told == ["refuse work", "stop consuming", ("hand back", 0.0), "end"]


def test_redis_need_not_be_there(world, caplog):
    told = drained(world, Parts(world), grace_s=0, board=AwayBoard(world.board, fails=9))
    assert told[-1] == "end"
    assert "run out by themselves" in caplog.text
