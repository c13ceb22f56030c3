"""What a pool publishes about itself."""

import pytest

from engines.protocol import Hello, Step
from noidle.snapshot import HostDetail, PoolState, Pressure
from tests.unit.workers.world import PLACE, POOL, AwayBoard, World
from workers.engine_view import EngineView
from workers.reporter import PlainSampler, Reporter, Sample

HELLO = Hello(
    protocol=1,
    device="d",
    kinds=("generate", "score"),
    models=("built-in",),
    slots_max=3,
    kv_tokens_total=100,
    versions={"program": "7"},
)


class Sampler:
    """Says what a test wants measured."""

    def __init__(self, **fields):
        self.fields = {"pressure": Pressure.OK, "host": HostDetail(host="here", cores=2), **fields}
        self.pids = []

    def sample(self, engine_pid):
        self.pids.append(engine_pid)
        return Sample(**self.fields)


@pytest.fixture
def world():
    return World()


def make(world, *, board=None, view=None, sampler=None, **fields):
    options = {
        "place": lambda: PLACE,
        "slots": 4,
        "in_flight": lambda: 2,
        "stored": lambda: ["stored"],
        "storage": "s",
        "program": "echo",
        **fields,
    }
    board = board or world.board
    return Reporter(board, view or EngineView(), sampler or Sampler(), **options)


def published(world):
    [snapshot] = [one for one in world.board.pools() if one.pool == POOL]
    return snapshot


def up():
    view = EngineView()
    view.hear(HELLO)
    return view


def test_a_pool_that_is_up_says_what_it_takes(world):
    sampler = Sampler(pressure=Pressure.SOFT, memory_free_bytes=9)
    make(world, view=up(), sampler=sampler).publish()
    seen = published(world)
    assert (seen.state, seen.why, seen.pressure) == (PoolState.READY, None, Pressure.SOFT)
    # no more than the engine can hold
    assert (seen.slots, seen.in_flight) == (3, 2)
    assert (seen.kinds, seen.models) == (("generate", "score"), ("built-in", "stored"))
    assert (seen.kv_tokens_total, seen.kv_tokens_free, seen.memory_free_bytes) == (100, 100, 9)
    assert (seen.storage, seen.device, seen.stand_in) == ("s", "d", False)
    assert sampler.pids == [77]
    [detail] = world.board.details()
    assert (detail.versions, detail.program) == ({"program": "7"}, "echo")


def test_a_run_needs_its_share_of_what_a_full_step_takes(world):
    view = up()
    make(world, view=view).publish()
    assert published(world).working_bytes is None
    view.hear(Step(runs=(), loaded=("built-in",), working_bytes=3000))
    make(world, view=view).publish()
    assert published(world).working_bytes == 1000
    view.down("exited", 1)
    make(world, view=view).publish()
    assert published(world).working_bytes is None


def test_a_pool_whose_engine_is_not_up_says_why(world):
    view = EngineView()
    reporter = make(world, view=view)
    reporter.publish()
    assert (published(world).state, published(world).why) == ("starting", "its engine starts")
    view.down("exited with status 1", 1)
    reporter.publish()
    assert (published(world).state, published(world).why) == ("starting", "exited with status 1")
    view.down("exited with status 1", 5)
    reporter.publish()
    assert published(world).state is PoolState.FAILED


def test_a_draining_pool_says_so_whatever_its_engine_does(world):
    reporter = make(world, view=up())
    reporter.drain("told to stop")
    reporter.publish()
    assert (published(world).state, published(world).why) == ("draining", "told to stop")


def test_a_change_is_published_at_once(world):
    view = EngineView()
    reporter = make(world, view=view)
    reporter.start()
    view.hear(HELLO)
    reporter.changed()
    while published(world).state is not PoolState.READY:
        pass
    reporter.stop()


@pytest.mark.parametrize("fault", ["sampler", "board"])
def test_a_fault_does_not_end_the_thread(world, fault, caplog):
    class Faulty(Sampler):
        def sample(self, engine_pid):
            if not self.pids:
                self.pids.append(engine_pid)
                raise ValueError("cannot be read")
            return super().sample(engine_pid)

    world.board.leave(POOL)
    board = AwayBoard(world.board, fails=1 if fault == "board" else 0)
    sampler = Faulty() if fault == "sampler" else Sampler()
    reporter = make(world, board=board, sampler=sampler)
    reporter.start()
    while not world.board.pools():
        reporter.changed()
    reporter.stop()
    words = "could not be described" if fault == "sampler" else "counts as gone"
    assert words in caplog.text


def test_the_plain_sampler_knows_the_cores_and_the_processes():
    sample = PlainSampler("here").sample(5)
    assert (sample.pressure, sample.memory_free_bytes) == (Pressure.OK, None)
    assert [one.name for one in sample.processes] == ["worker", "engine"]
    assert [one.name for one in PlainSampler("here").sample(None).processes] == ["worker"]
