import pytest

from noidle.snapshot import Pressure
from ops.metrics.pressure import MemoryState, next_pressure

MIB = 1 << 20
OK, SOFT, HARD = Pressure.OK, Pressure.SOFT, Pressure.HARD


def make_state(
    share: float | None = 0.5,
    some: float | None = 0.0,
    full: float | None = 0.0,
    device_mib: int | None = None,
) -> MemoryState:
    return MemoryState(
        available_share=share,
        stall_some_percent=some,
        stall_full_percent=full,
        device_free_bytes=device_mib * MIB if device_mib is not None else None,
    )


@pytest.mark.parametrize(
    ("sentence", "before", "state", "wanted"),
    [
        ("plenty is free", OK, make_state(0.5), OK),
        ("below a tenth", OK, make_state(0.09), SOFT),
        ("below a twentieth", OK, make_state(0.04), HARD),
        ("soft stays until there is more room than it took to enter", SOFT, make_state(0.12), SOFT),
        ("soft ends with room", SOFT, make_state(0.14), OK),
        ("hard stays until there is more room than it took to enter", HARD, make_state(0.07), HARD),
        ("hard ends in soft", HARD, make_state(0.09), SOFT),
        ("hard ends in soft, which has hysteresis of its own", HARD, make_state(0.12), SOFT),
        ("hard ends in ok", HARD, make_state(0.2), OK),
        (
            "a stall with much free memory is somebody reading files",
            OK,
            make_state(0.9, 80, 70),
            OK,
        ),
        ("a stall with little free memory", OK, make_state(0.2, 15, 0), SOFT),
        ("all tasks stall with little free memory", OK, make_state(0.2, 15, 12), HARD),
        ("a stall that fades keeps its level for a while", SOFT, make_state(0.2, 6, 0), SOFT),
        ("a stall that is gone", SOFT, make_state(0.2, 4, 0), OK),
        ("no kernel tells the stall", OK, make_state(0.2, None, None), OK),
        ("nothing can be read", OK, make_state(None, None, None), OK),
        ("a device that somebody else filled", OK, make_state(device_mib=200), SOFT),
        ("a device that is full", OK, make_state(device_mib=32), HARD),
        ("a device with a little more room than at entry", SOFT, make_state(device_mib=300), SOFT),
        ("a device with room again", SOFT, make_state(device_mib=400), OK),
    ],
)
def test_pressure_follows_memory(sentence: str, before: Pressure, state: MemoryState, wanted):
    assert next_pressure(before, state) is wanted, sentence
