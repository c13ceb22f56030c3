"""Models that come and go on a pool's storage."""

import pytest

from noidle.errors import CheckpointError, ClusterUnavailable, InvalidJob
from noidle.snapshot import ModelInfo
from tests.unit.workers.world import AwayBoard, World
from workers.shelf import Shelf

DISK = "disk"


class Storage:
    """Name to revision; a revision of None has files that cannot be used."""

    def __init__(self, **revisions):
        self.found = revisions
        self.asked = []

    def revisions(self):
        return {name: revision or "broken" for name, revision in self.found.items()}

    def describe(self, name):
        self.asked.append(name)
        if self.found[name] is None:
            raise CheckpointError.of(f"{name}/config.json", "is not JSON")
        return ModelInfo(name=name, revision=self.found[name], storage=DISK, context=1000)


@pytest.fixture
def world():
    return World()


def make(world, storage, board=None):
    return Shelf(board or world.board, DISK, revisions=storage.revisions, describe=storage.describe)


def test_a_model_that_is_added_can_be_named_by_jobs(world):
    storage = Storage(first="1")
    shelf = make(world, storage)
    assert shelf.look() == ("first",)
    with pytest.raises(InvalidJob, match="second"):
        world.leased(model="second")
    storage.found["second"] = "2"
    assert shelf.look() == ("first", "second")
    assert world.board.models()["second"].revision == "2"
    world.leased(model="second")


def test_what_did_not_change_is_not_read_again(world):
    storage = Storage(first="1")
    shelf = make(world, storage)
    shelf.look()
    shelf.look()
    assert storage.asked == ["first"]
    storage.found["first"] = "2"
    shelf.look()
    assert storage.asked == ["first", "first"]
    assert world.board.models()["first"].revision == "2"


def test_a_model_that_is_removed_is_forgotten(world):
    storage = Storage(first="1", second="2")
    shelf = make(world, storage)
    shelf.look()
    del storage.found["first"]
    assert shelf.look() == ("second",)
    assert set(world.board.models()) == {"echo", "second"}


def test_what_was_removed_while_no_pool_was_up_is_forgotten_too(world):
    world.board.register(ModelInfo(name="gone", revision="1", storage=DISK))
    world.board.register(ModelInfo(name="elsewhere", revision="1", storage="another"))
    make(world, Storage()).look()
    assert set(world.board.models()) == {"echo", "elsewhere"}


def test_a_model_that_cannot_be_read_is_told_of_once(world, caplog):
    shelf = make(world, Storage(bad=None, good="1"))
    assert shelf.look() == ("bad", "good")
    shelf.look()
    assert caplog.text.count("bad/config.json: is not JSON") == 1
    assert set(world.board.models()) == {"echo", "good"}


def test_what_could_not_be_told_is_told_again(world):
    storage = Storage(first="1")
    # the first look asks what the board knows, and tells it
    shelf = make(world, storage, AwayBoard(world.board, fails=2))
    for _ in range(2):
        with pytest.raises(ClusterUnavailable):
            shelf.look()
    shelf.look()
    assert "first" in world.board.models()
