"""The table of what a pool has claimed."""

import threading

from tests.unit.workers.world import World
from workers.runs import Ending, Outcome, Runs

LOST = Outcome(ending=Ending.LOST)


def test_a_token_is_there_once():
    run, runs = World().claimed(), Runs()
    assert runs.add(run)
    assert not runs.add(run)
    assert (len(runs), runs.get(run.token), runs.all()) == (1, run, [run])


def test_a_run_that_ends_leaves_the_table_and_lets_its_thread_go():
    world = World()
    run = world.claimed()
    heard = []
    thread = threading.Thread(target=lambda: heard.append(run.wait()))
    thread.start()
    world.runs.end(run, LOST)
    thread.join(10)
    assert heard == [LOST]
    assert world.runs.get(run.token) is None


def test_who_waits_for_an_empty_table_is_told():
    world = World()
    run = world.claimed()
    assert not world.runs.wait_until_empty(0.0)
    heard = []
    thread = threading.Thread(target=lambda: heard.append(world.runs.wait_until_empty(10)))
    thread.start()
    world.runs.end(run, LOST)
    thread.join(10)
    assert heard == [True]
