from noidle.jobs import EngineName
from noidle.snapshot import PoolSnapshot, PoolState
from ops.watchdog import Sight, Watchdog, sight_of_pool

FINE = Sight(present=True)
SILENT = Sight(present=False)
DEAF = Sight(present=True, idle_with_work=True)


def make_pool(state: PoolState = PoolState.READY, in_flight: int = 0) -> PoolSnapshot:
    return PoolSnapshot(
        pool="cpu@box",
        engine=EngineName.CPU,
        host="box",
        device="2 cores",
        slots=4,
        in_flight=in_flight,
        state=state,
    )


def test_a_silent_process_is_restarted_after_the_patience_and_not_before():
    dog = Watchdog(patience_s=20)
    assert dog.judge({"cpu": SILENT}, 100.0) == {}
    assert dog.judge({"cpu": SILENT}, 119.0) == {}
    assert dog.judge({"cpu": SILENT}, 120.0) == {"cpu": "lives, but has not been heard of"}


def test_one_good_look_begins_the_patience_anew():
    dog = Watchdog(patience_s=20)
    dog.judge({"cpu": SILENT}, 100.0)
    dog.judge({"cpu": FINE}, 110.0)
    dog.judge({"cpu": SILENT}, 115.0)
    assert dog.judge({"cpu": SILENT}, 125.0) == {}


def test_a_look_that_is_missing_begins_it_anew_too():
    """While Redis is away, and just after a restart, nothing is seen of anybody."""
    dog = Watchdog(patience_s=20)
    dog.judge({"cpu": SILENT}, 100.0)
    dog.judge({}, 110.0)
    assert dog.judge({"cpu": SILENT}, 121.0) == {}


def test_after_a_restart_the_patience_is_whole_again():
    dog = Watchdog(patience_s=20)
    dog.judge({"cpu": DEAF}, 100.0)
    assert dog.judge({"cpu": DEAF}, 120.0)
    assert dog.judge({"cpu": DEAF}, 121.0) == {}


def test_another_fault_is_another_row():
    dog = Watchdog(patience_s=20)
    dog.judge({"cpu": SILENT}, 100.0)
    assert dog.judge({"cpu": DEAF}, 121.0) == {}


def test_a_pool_with_room_that_leaves_messages_is_deaf():
    assert sight_of_pool(make_pool(), waiting=1) == DEAF
    assert sight_of_pool(make_pool(), waiting=0) == FINE


def test_a_pool_that_cannot_take_more_is_right_to_leave_them():
    assert sight_of_pool(make_pool(in_flight=4), waiting=3) == FINE
    assert sight_of_pool(make_pool(PoolState.DRAINING), waiting=3) == FINE
    assert sight_of_pool(make_pool(PoolState.STARTING), waiting=3) == FINE


def test_a_pool_that_publishes_nothing_is_silent():
    assert sight_of_pool(None, waiting=0) == SILENT
