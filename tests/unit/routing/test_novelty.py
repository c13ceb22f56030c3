"""When a decision or a snapshot says something new."""

import pytest

from noidle.jobs import EngineName
from noidle.results import Decision, PoolVerdict
from noidle.snapshot import PoolSnapshot, PoolState, Pressure
from routing.novelty import mark, snapshot_mark, takes_leases


def decision(reason: str = "cpu is free in 3.2 s", **fields: object) -> Decision:
    verdicts = (PoolVerdict(pool="cpu@a", outcome="wait", reason="full", finish_s=3.2),)
    data = {"job": "a", "at_ms": 1, "action": "wait", "reason": reason, "verdicts": verdicts}
    return Decision.model_validate({**data, **fields})


def test_other_numbers_say_nothing_new() -> None:
    assert mark(decision()) == mark(decision("cpu is free in 12 s", at_ms=2))


@pytest.mark.parametrize(
    "fields",
    [
        {"reason": "cpu is full"},
        {"action": "lease"},
        {"pool": "cpu@a"},
        {"verdicts": (PoolVerdict(pool="cpu@a", outcome="refused", reason="full"),)},
        {"verdicts": ()},
    ],
)
def test_anything_else_does(fields: dict[str, object]) -> None:
    assert mark(decision(**fields)) != mark(decision())


def snapshot(**fields: object) -> PoolSnapshot:
    data = {"pool": "cpu@a", "engine": EngineName.CPU, "host": "a", "device": "cpu", "slots": 4}
    return PoolSnapshot.model_validate({**data, "state": PoolState.READY, **fields})


def test_load_alone_does_not_wake_the_pump_but_room_does() -> None:
    before = snapshot_mark(snapshot())
    assert snapshot_mark(snapshot(in_flight=3, memory_free_bytes=5, loaded=("x",))) == before
    for new in ({"slots": 5}, {"models": ("x",)}, {"storage": "d"}, {"state": PoolState.DRAINING}):
        assert snapshot_mark(snapshot(**new)) != before


@pytest.mark.parametrize(
    ("fields", "takes"),
    [
        ({}, True),
        ({"pressure": Pressure.SOFT}, True),
        ({"pressure": Pressure.HARD}, False),
        ({"state": PoolState.STARTING}, False),
        ({"state": PoolState.DRAINING}, False),
        ({"state": PoolState.FAILED}, False),
    ],
)
def test_a_pool_takes_leases_when_it_is_ready_and_has_memory(
    fields: dict[str, object], takes: bool
) -> None:
    assert takes_leases(snapshot(**fields)) is takes
    assert snapshot_mark(snapshot(**fields)).startswith("open ") is takes
