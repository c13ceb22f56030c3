"""How short memory is: a level from measurements, with hysteresis. Pure; knows nothing of
where the figures come from.

Host, by the share of memory that is still available (of the machine, or of the cgroup's limit):

    level   enters below   or, with less than 25 % available, at a stall of   leaves above
    soft    10 %           some ≥ 10 %                                        13 %
    hard     5 %           full ≥ 10 %                                         8 %

A stall alone says nothing: reading a cold file stalls on a machine with free memory as well.
A device counts by its free bytes: soft below 256 MiB, hard below 64 MiB, left at 1.5 times that;
engines take their memory under a budget, so a small remainder means that somebody else grew.
"""

from dataclasses import dataclass

from noidle.snapshot import Pressure

_MIB = 1 << 20
_STALL_COUNTS_BELOW = 0.25
_ORDER = (Pressure.OK, Pressure.SOFT, Pressure.HARD)


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryState:
    """One measurement; what could not be read is None and decides nothing."""

    # available / total, 0 to 1
    available_share: float | None = None
    # pressure stall of the last 10 s, percent
    stall_some_percent: float | None = None
    stall_full_percent: float | None = None
    # least free memory of the devices in use
    device_free_bytes: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class _Level:
    enter_share: float
    leave_share: float
    stall_percent: float
    device_bytes: int


_SOFT = _Level(enter_share=0.10, leave_share=0.13, stall_percent=10, device_bytes=256 * _MIB)
_HARD = _Level(enter_share=0.05, leave_share=0.08, stall_percent=10, device_bytes=64 * _MIB)


def next_pressure(before: Pressure, state: MemoryState) -> Pressure:
    """The level that follows `before` at this measurement."""
    if _holds(_HARD, state, state.stall_full_percent, inside=before is Pressure.HARD):
        return Pressure.HARD
    inside_soft = _ORDER.index(before) >= _ORDER.index(Pressure.SOFT)
    if _holds(_SOFT, state, state.stall_some_percent, inside=inside_soft):
        return Pressure.SOFT
    return Pressure.OK


def _holds(level: _Level, state: MemoryState, stall: float | None, *, inside: bool) -> bool:
    """Whether the level applies; one that applied before needs more room to end."""
    share = state.available_share
    if share is not None:
        if share < (level.leave_share if inside else level.enter_share):
            return True
        # half the entry's stall keeps a level, so that it does not flicker around one figure
        needed = level.stall_percent / 2 if inside else level.stall_percent
        if share < _STALL_COUNTS_BELOW and stall is not None and stall >= needed:
            return True
    free = state.device_free_bytes
    needed_bytes = level.device_bytes * 3 // 2 if inside else level.device_bytes
    return free is not None and free < needed_bytes
