"""When leases should end. Owns the estimate for those that are overdue, and for those of another
router; knows nothing of jobs that wait."""

import math

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


def row_of(pool: PoolSnapshot, load: PoolLoad, known: list[Promise]) -> list[float]:
    row = [math.inf] * 7
    for place, promise in enumerate(known[:2]):
        row[2 * place : 2 * place + 2] = promise.ends_ms, promise.leased_ms
    unknown = load.in_flight - len(known)
    if unknown > 0:
        row[4] = max(typical_s(pool, load.in_flight) / unknown, SOON_S)
    last = max((one for one in known if one.kind == "train"), key=ends_ms, default=None)
    if last is not None:
        row[5:7] = last.ends_ms, last.leased_ms
    return row


def typical_s(pool: PoolSnapshot, busy: int) -> float:
    speed = speed_of(pool, ModelInfo(name=""))
    return TYPICAL_TOKENS * (speed.step_s + speed.step_s_per_sequence * busy)


def left_s(end_ms: Column, leased_ms: Column, now_ms: int) -> Column:
    left_ms = end_ms - now_ms
    with np.errstate(invalid="ignore"):
        left_ms = np.where(left_ms > 0, left_ms, OVERDUE_SHARE * (now_ms - leased_ms))
    return np.maximum(left_ms / 1000, SOON_S)


def left_of(promise: Promise, now_ms: int) -> float:
    left_ms: float = promise.ends_ms - now_ms
    if left_ms <= 0:
        left_ms = OVERDUE_SHARE * (now_ms - promise.leased_ms)
    return max(left_ms / 1000, SOON_S)
