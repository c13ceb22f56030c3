"""When a job would end in each pool that could run it, and where it ends first.

Owns the comparison; knows nothing of the gate, or of what a choice then takes away. All pools are
compared by lower bounds at once, and only the one that wins is looked at closely; if it is not as
good as it looked, it goes back among the others."""

import math

import numpy as np

from noidle.jobs import EngineName
from routing.bay import Bay, Was
from routing.board import HeldJob
from routing.facts import Column
from routing.placement import Cause, Forecast, Need
from routing.view import TIE, View

SLICE_S = 5.0
"""Length assumed of a training slice."""
ROUNDING_S = 1e-6
CLOSE_LOOKS = 4
"""After so many pools that were not as good as they looked, all are checked for room at once."""
_ELSEWHERE_S = 1e-6
"""Where all else is equal, training goes to `gpu`."""


def rank(job: HeldJob, view: View, need: Need) -> Column:
    """For each pool a lower bound of what decides: the seconds to the job's end, or how far a
    training falls behind one on the fastest pool at once. Infinite where it cannot run."""
    view.catch_up()
    if job.kind == "train":
        rates = view.lane.facts.train_tokens_per_s
        rows = np.maximum(view.base, view.look.training_s)
        rows += SLICE_S * (1 - rates / view.train_tokens_per_s)
        return rows
    rows = view.read_s * need.prompt
    rows += view.step_s * need.tokens
    rows += view.base
    for i, tokens in need.warm.items():
        rows[i] -= tokens * view.read_s.item(i)
    if need.kv_tokens > view.lane.facts.kv_least:
        rows[view.lane.facts.kv_limit < need.kv_tokens] = math.inf
    return rows


def best(job: HeldJob, view: View, need: Need, rows: Column) -> tuple[int, Forecast] | None:
    """The pool where it ends first, and how it fares there; corrects `rows` on the way."""
    close: list[int] = []
    while True:
        i = int(rows.argmin())
        bound = rows.item(i)
        if bound == math.inf:
            return None
        bay = view.look.bay(i)
        found = None if job.alone else _as_it_looked(job, view, i, bay, need, bound)
        if found is not None:
            return i, found
        found = at(job, view, i, bay, need)
        value = _rank(job, view, i, found)
        if value <= bound + ROUNDING_S:
            return i, found
        rows[i] = value
        close.append(i)
        if len(close) == CLOSE_LOOKS:
            _check_room(view, need, rows, close)


def _as_it_looked(
    job: HeldJob, view: View, i: int, bay: Bay, need: Need, bound: float
) -> Forecast | None:
    """The usual case without a second reckoning: the pool is full, or has room in plenty."""
    if job.kind == "train":
        return None
    late_s = view.late_s(i, bay.backlog_s)
    next_s = bay.next_s * view.wait
    if bay.free <= 0 and late_s <= next_s:
        return bound - TIE * next_s, next_s, Cause.FULL, bay.slots
    if bay.free <= view.kept.item(i) or need.kv_tokens > bay.kv_open or late_s > 0:
        return None
    if view.lane.memory_bytes(i, need.kv_tokens) > bay.memory_open:
        return None
    return bound, 0.0, Cause.FREE, bay.busy + 1


def at(job: HeldJob, view: View, i: int, bay: Bay | Was, need: Need) -> Forecast:
    """How the job would fare in one pool."""
    if job.kind == "train":
        start_s, cause = _train_start(job, view, i, bay)
        return view.lane.begins_s(i, start_s) + SLICE_S, start_s, cause, bay.busy + 1
    if job.alone:
        return _alone(view, i, bay, need)
    start_s, cause, batch = _start(view, i, bay, need)
    late_s = view.late_s(i, bay.backlog_s)
    if late_s > start_s:
        start_s, cause = late_s, Cause.READING
    begins_s = max(view.lane.begins_s(i, start_s), bay.backlog_s)
    return begins_s + work_s(view, i, need, batch), start_s, cause, batch


def work_s(view: View, i: int, need: Need, batch: int) -> float:
    """Prefill and decode."""
    return unread(i, need) * view.read_s.item(i) + decode_s(view, i, need, batch)


def unread(i: int, need: Need) -> int:
    """Tokens of the prompt that a pool must read."""
    return need.prompt - need.warm.get(i, 0)


def decode_s(view: View, i: int, need: Need, batch: int) -> float:
    facts = view.lane.facts
    step_s = facts.step_s.item(i) + facts.sequence_s.item(i) * batch
    return need.tokens * step_s * view.look.roster.decode_drag.item(i)


def _rank(job: HeldJob, view: View, i: int, found: Forecast) -> float:
    finish_s, start_s, _, _ = found
    if job.kind != "train":
        return finish_s
    lost_s = SLICE_S * (1 - view.lane.facts.train_tokens_per_s.item(i) / view.train_tokens_per_s)
    elsewhere = view.look.roster.pools[i].engine is not EngineName.GPU
    return finish_s - SLICE_S + lost_s + _ELSEWHERE_S * (start_s + 2 * elsewhere)


def _start(view: View, i: int, bay: Bay | Was, need: Need) -> tuple[float, Cause, int]:
    if bay.free <= 0:
        return bay.next_s * view.wait, Cause.FULL, bay.slots
    if bay.free <= view.kept.item(i):
        return bay.next_s * view.wait, Cause.SPARE, bay.slots
    if view.lane.memory_bytes(i, need.kv_tokens) > bay.memory_open:
        return bay.next_s, Cause.MEMORY, bay.busy
    kv = view.lane.kv_counted(i, need.kv_tokens)
    if kv > bay.kv_free:
        return bay.next_s, Cause.KV, bay.busy
    batch = bay.busy + 1
    if kv <= bay.kv_open:
        return 0.0, Cause.FREE, batch
    begins_s = max(view.lane.begins_s(i, 0.0), bay.backlog_s)
    if begins_s + work_s(view, i, need, batch) <= bay.fence_s:
        return 0.0, Cause.FREE, batch
    return bay.fence_s, Cause.FENCED, batch


def _alone(view: View, i: int, bay: Bay | Was, need: Need) -> Forecast:
    """It starts once the pool is empty, and nothing joins it."""
    fits = view.lane.memory_bytes(i, need.kv_tokens) <= bay.memory_open
    if bay.busy == 0 and bay.kv_open >= 0 and fits:
        start_s, cause = 0.0, Cause.FREE
    else:
        start_s, cause = view.look.bay(i).all_free_s(), Cause.ALONE
    return view.lane.begins_s(i, start_s) + work_s(view, i, need, 1), start_s, cause, 1


def _train_start(job: HeldJob, view: View, i: int, bay: Bay | Was) -> tuple[float, Cause]:
    if bay.training_s > 0:
        return bay.training_s, Cause.TRAINING
    if job.alone and bay.busy:
        return view.look.bay(i).all_free_s(), Cause.ALONE
    if bay.free <= 0:
        return bay.next_s, Cause.FULL
    if bay.free <= view.kept.item(i):
        return bay.next_s, Cause.SPARE
    if view.lane.load_bytes.item(i) > bay.memory_open:
        return bay.next_s, Cause.MEMORY
    late_s = view.late_s(i, bay.backlog_s)
    if late_s > 0:
        # others wait there until prompts have been read, and would wait longer beside it
        return late_s, Cause.READING
    return (0.0, Cause.FREE) if bay.fence_s > SLICE_S else (bay.fence_s, Cause.FENCED)


def _check_room(view: View, need: Need, rows: Column, close: list[int]) -> None:
    """Raises the bound of the pools that are open and yet short of KV cache or memory."""
    look, lane = view.look, view.lane
    kv = np.where(lane.facts.kv_limit < math.inf, need.kv_tokens, 0)
    short = kv > look.kv_open
    run_bytes = need.kv_tokens * lane.facts.kv_bytes + lane.facts.run_bytes
    short |= lane.load_bytes + run_bytes > look.memory_open
    # a fence lets pass what ends before it: those are looked at closely
    short &= view.open & ~look.fenced
    short[close] = False
    rows[short] += look.next_s[short]
