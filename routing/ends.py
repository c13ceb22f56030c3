"""When leases should end. Owns the estimate for those that are overdue, and for those of another
router; knows nothing of jobs that wait."""

import math
from typing import NamedTuple

import numpy as np

from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.board import PoolLoad
from routing.cluster import Promise
from routing.facts import Column
from routing.prediction import speed_of

TYPICAL_TOKENS = 128
"""Length assumed of a lease that another router made."""
OVERDUE_SHARE = 0.25
"""A run past its predicted end is expected to take this share more of what it took so far."""
SOON_S = 0.02
"""No run is expected to end sooner than this."""


def ends_ms(promise: Promise) -> int:
    return promise.ends_ms


def standing(made: tuple[Promise, ...], load: PoolLoad) -> list[Promise]:
    """The promises that still stand, the first to end first."""
    return sorted(made, key=ends_ms)[max(len(made) - load.in_flight, 0) :]


class Ends(NamedTuple):
    """Redis times of a pool; infinite where there is none. A tuple, as a look makes many."""

    # of the first two leases to end, and of the last training
    first_ms: float = math.inf
    second_ms: float = math.inf
    training_ms: float = math.inf
    # when those began
    first_leased_ms: float = math.inf
    second_leased_ms: float = math.inf
    training_leased_ms: float = math.inf
    # seconds until the first of the leases ends that others made
    unknown_s: float = math.inf


def ends_of(pool: PoolSnapshot, load: PoolLoad, known: list[Promise]) -> Ends:
    if not load.in_flight:
        return NO_ENDS
    first = second = last = None
    if known:
        first, second = known[0], known[1] if len(known) > 1 else None
    for promise in known:
        if promise.kind == "train" and (last is None or promise.ends_ms > last.ends_ms):
            last = promise
    unknown = load.in_flight - len(known)
    unknown_s = max(typical_s(pool, load.in_flight) / unknown, SOON_S) if unknown > 0 else math.inf
    return Ends(
        first.ends_ms if first else math.inf,
        second.ends_ms if second else math.inf,
        last.ends_ms if last else math.inf,
        first.leased_ms if first else math.inf,
        second.leased_ms if second else math.inf,
        last.leased_ms if last else math.inf,
        unknown_s,
    )


NO_ENDS = Ends()


def typical_s(pool: PoolSnapshot, busy: int) -> float:
    speed = speed_of(pool, ModelInfo(name=""))
    return TYPICAL_TOKENS * (speed.step_s + speed.step_s_per_sequence * busy)


def left_s(end_ms: Column, leased_ms: Column, now_ms: int) -> Column:
    left_ms = end_ms - now_ms
    left_ms = np.where(left_ms > 0, left_ms, OVERDUE_SHARE * (now_ms - leased_ms))
    left_ms /= 1000
    return np.maximum(left_ms, SOON_S, out=left_ms)


def left_of(promise: Promise, now_ms: int) -> float:
    left_ms: float = promise.ends_ms - now_ms
    if left_ms <= 0:
        left_ms = OVERDUE_SHARE * (now_ms - promise.leased_ms)
    return max(left_ms / 1000, SOON_S)
