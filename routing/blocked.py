"""The jobs that wait too long for their class, with what each pool lacks to start them. Owns
reading this out of a look; knows nothing of who may make room."""

import math
from collections.abc import Iterable

import numpy as np

from routing.bay import Was
from routing.board import HeldJob
from routing.forecast import at
from routing.placement import Action, Cause, Placement
from routing.preemption import Blocked, Option, Terms

HEADS_A_LOOK = 16
POOLS_A_JOB = 32


def blocked_heads(placements: Iterable[Placement], terms: Terms, now_ms: int) -> list[Blocked]:
    """In the order of the look."""
    found: list[Blocked] = []
    for one in placements:
        if one.view is None or len(found) >= HEADS_A_LOOK:
            break
        if _waits_too_long(one, terms, now_ms):
            options = _options(one)
            # one that could start somewhere, but ends sooner where it waits, is not blocked;
            # but training loses nothing by a pause
            alone = None if options is not None else _behind_training(one)
            if alone is not None:
                found.append(_blocked(one, (alone,), now_ms, training_only=True))
            elif options is not None:
                found.append(_blocked(one, options, now_ms))
    return found


def _blocked(
    placement: Placement,
    options: tuple[Option, ...],
    now_ms: int,
    *,
    training_only: bool = False,
) -> Blocked:
    assert placement.forecast is not None
    finish_s, start_s, *_ = placement.forecast
    # who has waited was told before that it would not take long
    finish_s += _waited_s(placement.job, now_ms)
    return Blocked(
        job=placement.job,
        start_s=start_s,
        finish_s=finish_s,
        options=options,
        training_only=training_only,
    )


def _waits_too_long(placement: Placement, terms: Terms, now_ms: int) -> bool:
    """Training is never urgent, and a suspect waits for a pool of its own."""
    job, forecast = placement.job, placement.forecast
    patience_s = terms.patience_s.get(job.job_class)
    if patience_s is None or job.alone or job.kind == "train":
        return False
    if placement.action is not Action.WAIT or forecast is None:
        return False
    return _waited_s(job, now_ms) + forecast[1] > patience_s


def _waited_s(job: HeldJob, now_ms: int) -> float:
    return max(0, now_ms - job.held_since_ms) / 1000


def _options(placement: Placement) -> tuple[Option, ...] | None:
    """None where a pool lacks nothing."""
    rows = placement.rows
    assert rows is not None
    found = []
    for i in map(int, np.argsort(rows)[:POOLS_A_JOB]):
        if rows[i] == math.inf:
            break
        lack = _lack(placement, i)
        if lack is not None and not any(part > 0 for part in lack[1]):
            return None
        found.append((i, lack))
    return tuple(_option(placement, i, *lack) for i, lack in found if lack is not None)


def _behind_training(placement: Placement) -> Option | None:
    """The pool it waits for, if a training there has a slot that it lacks, or time that prompts
    before it could have."""
    i, view, forecast = placement.best, placement.view, placement.forecast
    assert i is not None
    assert view is not None
    assert forecast is not None
    lack = _lack(placement, i) if view.look.training_s.item(i) > 0 else None
    if lack is None:
        return None
    was, (slots, kv, memory) = lack
    if forecast[2] is Cause.READING:
        slots = max(slots, 1)
    return _option(placement, i, was, (slots, kv, memory)) if slots else None


_Lack = tuple[Was, tuple[int, float, float]]
"""How a pool was, and the slots, tokens of KV cache and bytes that a job lacks there."""


def _lack(placement: Placement, i: int) -> _Lack | None:
    """None where what is free is reserved for a job before it: that is not to be had."""
    view, need = placement.view, placement.need
    assert view is not None
    assert need is not None
    was = view.look.was(i, placement.moment)
    if was.fence_s < math.inf:
        return None
    slots = max(0, int(view.kept.item(i)) + 1 - was.free)
    kv = max(0.0, view.lane.kv_counted(i, need.kv_tokens) - was.kv_open)
    memory = max(0.0, view.lane.memory_bytes(i, need.kv_tokens) - was.memory_open)
    return was, (slots, kv, memory)


def _option(placement: Placement, i: int, was: Was, lack: tuple[int, float, float]) -> Option:
    view, need = placement.view, placement.need
    assert view is not None
    assert need is not None
    roster = view.look.roster
    roomy = was._replace(
        free=max(was.free, int(view.kept.item(i)) + 1),
        busy=min(was.busy, was.slots - 1),
        kv_free=math.inf,
        kv_open=math.inf,
        memory_open=math.inf,
    )
    slots, kv, memory = lack
    sharers = roster.sharers.get(int(roster.device[i]), [i])
    return Option(
        pool=roster.names[i],
        finish_s=at(placement.job, view, i, roomy, need)[0],
        slots=slots,
        kv_tokens=kv,
        memory_bytes=memory,
        sharers=tuple(roster.names[j] for j in sharers),
    )
