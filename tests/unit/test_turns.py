"""Tests that take turns: many at once, or one alone, whom nobody overtakes."""

import fcntl
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests.turns import Turns


def test_many_are_in_at_once(tmp_path):
    turns = Turns(tmp_path)
    with turns.take(alone=False), turns.take(alone=False):
        pass


def test_one_alone_waits_for_the_others_and_is_not_overtaken(tmp_path):
    turns, done = Turns(tmp_path), []
    at_door = {"alone": threading.Event(), "later": threading.Event()}

    def be_in(name: str, *, alone: bool) -> None:
        at_door[name].set()
        with turns.take(alone=alone):
            done.append(name)

    with ThreadPoolExecutor(2) as threads:
        with turns.take(alone=False):
            first = threads.submit(be_in, "alone", alone=True)
            at_door["alone"].wait()
            while not _shut(tmp_path / "door"):
                assert not first.done()
            later = threads.submit(be_in, "later", alone=False)
            at_door["later"].wait()
            assert done == []
        first.result()
        later.result()
    assert done == ["alone", "later"]


def _shut(door: Path) -> bool:
    """Whether somebody stands in it."""
    with door.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False
