"""The pools that a decision does not name one by one, counted by what keeps the job from them.

Owns the grouping, by columns, since there may be a thousand of them for each lease. Knows nothing
of the words for a single pool."""

import math
import re
from collections.abc import Iterable

import numpy as np
from numpy.typing import NDArray

from noidle.results import PoolGroup
from routing.causes import WORDS
from routing.facts import Column
from routing.gate import too_long
from routing.placement import Cause, Placement

NAMED = 64
"""So many pools of all groups of a decision are told by name; decisions lie in Redis."""
GROUPS = 12
"""With more reasons than this the rarest count as one."""
_TIMED = (Cause.FULL, Cause.SPARE, Cause.READING)
_NUMBER = re.compile(r"\d[\d.,]*")
_OTHER = "for other reasons"
_Indices = NDArray[np.intp]
_Found = tuple[str, str, _Indices, Column | None]
"""Outcome, reason, pools, and where they will be free, when."""


def groups_of(placement: Placement, told: Iterable[int]) -> tuple[PoolGroup, ...]:
    """All pools but those that were told one by one, the largest group first."""
    view, need = placement.view, placement.need
    if view is None or need is None:
        return ()
    rest = np.ones(len(view.look.roster.pools), bool)
    rest[list(told)] = False
    if not rest.any():
        return ()
    found = sorted([*_able(placement, rest), *_refused(placement, rest)], key=_size)
    if len(found) > GROUPS:
        small = np.concatenate([one[2] for one in found[GROUPS - 1 :]])
        found = [*found[: GROUPS - 1], ("refused", _OTHER, small, None)]
    named = 0
    groups = []
    for one in found:
        names = [view.look.roster.names[i] for i in one[2][: max(NAMED - named, 0)]]
        named += len(names)
        groups.append(_group(placement, one, tuple(names)))
    return tuple(groups)


def _size(found: _Found) -> tuple[int, str]:
    return -len(found[2]), found[1]


def _group(placement: Placement, found: _Found, names: tuple[str, ...]) -> PoolGroup:
    outcome, reason, indices, starts_s = found
    # what a training is ranked by is no time
    ends_s = None if placement.job.kind == "train" else placement.rows
    finish_from_s, finish_to_s = _range(ends_s, indices)
    start_from_s, start_to_s = _range(starts_s, indices)
    return PoolGroup(
        outcome=outcome,
        reason=reason,
        count=len(indices),
        start_from_s=start_from_s,
        start_to_s=start_to_s,
        finish_from_s=finish_from_s,
        finish_to_s=finish_to_s,
        pools=names,
    )


def _range(column: Column | None, indices: _Indices) -> tuple[float | None, float | None]:
    if column is None or not np.isfinite(column[indices]).all():
        return None, None
    return round(float(column[indices].min()), 3), round(float(column[indices].max()), 3)


def _able(placement: Placement, rest: NDArray[np.bool_]) -> Iterable[_Found]:
    """By what would keep the job waiting there, as it was when the decision was made."""
    view, need, rows = placement.view, placement.need, placement.rows
    assert view is not None
    assert need is not None
    if rows is None:
        return
    free, next_s, backlog_s, kv_open, memory_open = _as_it_was(placement)
    lane = view.lane
    left = rest & (rows < math.inf)
    slot_s = np.where(free > view.kept, 0.0, next_s)
    late_s = backlog_s - lane.ready_s - view.ahead_s
    starts_s = np.maximum(slot_s, late_s)
    kv = np.where(lane.facts.kv_limit < math.inf, need.kv_tokens, 0)
    need_bytes = lane.load_bytes + need.kv_tokens * lane.facts.kv_bytes + lane.facts.run_bytes
    for cause, marks in (
        (Cause.TRAINING, (view.look.training_s > 0) & (placement.job.kind == "train")),
        (Cause.ALONE, (view.look.busy > 0) & placement.job.alone),
        (Cause.READING, late_s > slot_s),
        (Cause.FULL, free <= 0),
        (Cause.SPARE, free <= view.kept),
        (Cause.MEMORY, need_bytes > memory_open),
        (Cause.KV, kv > kv_open),
        (Cause.FENCED, view.look.fenced),
        (Cause.FREE, left),
    ):
        here = left & marks
        left &= ~marks
        if here.any():
            told_s = starts_s if cause in _TIMED else None
            yield "slower", WORDS[cause], np.flatnonzero(here), told_s


def _as_it_was(placement: Placement) -> tuple[Column, Column, Column, Column, Column]:
    view = placement.view
    assert view is not None
    look = view.look
    columns = look.free, look.next_s, look.backlog_s, look.kv_open, look.memory_open
    changed = look.log[placement.moment :]
    if not changed:
        return columns
    free, next_s, backlog_s, kv_open, memory_open = (column.copy() for column in columns)
    # the first change after that moment says how it was
    for i, was in reversed(changed):
        free[i], next_s[i], backlog_s[i] = was.free, was.next_s, was.backlog_s
        kv_open[i], memory_open[i] = was.kv_open, was.memory_open
    return free, next_s, backlog_s, kv_open, memory_open


def _refused(placement: Placement, rest: NDArray[np.bool_]) -> Iterable[_Found]:
    view, need, job = placement.view, placement.need, placement.job
    assert view is not None
    assert need is not None
    left = rest if placement.rows is None else rest & (placement.rows == math.inf)
    for code, words in enumerate(view.scene.reasons):
        here = left & view.scene.refused & (view.scene.codes == code)
        if here.any():
            yield "refused", _NUMBER.sub("…", words), np.flatnonzero(here), None
    left = left & ~view.scene.refused
    long = too_long(job, view.model)
    small = view.lane.facts.kv_limit < need.kv_tokens
    for marks, words in (
        (view.look.silent, "was not heard of lately; that counts as full"),
        (view.short, f"too little memory for the weights of {view.model.name}"),
        (np.full(len(rest), long is not None), long.reason if long else ""),
        (small, f"its whole KV cache is too small for {need.kv_tokens} tokens"),
        (left, _OTHER),
    ):
        here = left & marks
        left = left & ~marks
        if here.any():
            yield "refused", words, np.flatnonzero(here), None
