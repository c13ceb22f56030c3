"""A placement in words: the decision as the board keeps it and people read it. Owns the
sentences; knows nothing of how a choice is made."""

import math
from collections.abc import Iterator
from itertools import islice

import numpy as np

from noidle.results import Decision, PoolVerdict
from routing.causes import WORDS, cause_of
from routing.forecast import at, decode_s, unread
from routing.gate import Refused, kv_too_small, refusal, too_long
from routing.groups import groups_of
from routing.placement import Action, Cause, Forecast, Placement

VERDICTS_KEPT = 12
"""With more pools than this the rest is told in groups; decisions lie in Redis."""
SHOWN_S = 0.005
"""Shorter waits for a model are rounding."""
FREE_SOUGHT = 200
"""So many of the best pools are searched for one that is free."""
REASONS_NAMED = 3
"""Refusals that the reason of an unplaceable job spells out."""


def decision_of(placement: Placement, now_ms: int, waited_for: str | None = None) -> Decision:
    """The decision with a verdict for each pool, the best first, refusals last.

    Args:
        waited_for: what kept a job that is leased until now.
    """
    pool = placement.pool
    seen = placement.peek(placement.job) if placement.peek else placement
    told = dict(_forecasts(seen))
    told |= _refusals(seen, VERDICTS_KEPT - len(told))
    return Decision(
        job=placement.job.id,
        at_ms=now_ms,
        action=placement.action.value,
        cause=cause_of(placement) or waited_for,
        pool=pool.pool if pool else None,
        queue=placement.grant.queue if placement.grant else None,
        reason=reason_of(seen) if seen is placement else f"{reason_of(placement)}{_as_next(seen)}",
        verdicts=tuple(told.values()),
        rest=groups_of(seen, told),
    )


def reason_of(placement: Placement) -> str:
    """The decision in one sentence."""
    if placement.action is Action.UNPLACEABLE:
        return _unplaceable(placement)
    if placement.action is Action.REFUSED:
        return _late(placement)
    if placement.view is None:
        return "jobs before it come first"
    if placement.best is None:
        return f"no pool can take it now: {_refusals_named(placement)}"
    return _leased(placement) if placement.action is Action.LEASE else _waits(placement)


def _unplaceable(placement: Placement) -> str:
    assert placement.view is not None
    if not placement.view.look.roster.pools:
        return "no pool is there"
    return f"no pool can run it: {_refusals_named(placement)}"


def _refusals_named(placement: Placement) -> str:
    assert placement.view is not None
    found = _refused(placement)
    named = [f"{_name(placement, i)} {one.reason}" for i, one in islice(found, REASONS_NAMED)]
    more = len(placement.view.look.roster.pools) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")


def _late(placement: Placement) -> str:
    job, pool, forecast, view = placement.job, placement.pool, placement.forecast, placement.view
    assert job.deadline_ms is not None
    assert view is not None
    left_s = (job.deadline_ms - view.look.now_ms) / 1000
    if left_s < 0:
        return f"its deadline passed {-left_s:.2f} s ago"
    assert pool is not None
    assert forecast is not None
    words = f"its deadline is in {left_s:.2f} s, and the best pool, {pool.pool}, would end it in"
    return f"{words} {forecast[0]:.2f} s"


def _leased(placement: Placement) -> str:
    pool, forecast = placement.pool, placement.forecast
    assert pool is not None
    assert forecast is not None
    nearest = _nearest(placement, 2)
    words = f"{_ends(placement, nearest[0])} on {pool.pool}"
    if len(nearest) < 2:
        return f"{words}, the only pool that can run it now"
    return (
        f"{words}; next best is {_name(placement, nearest[1])} with {_with(placement, nearest[1])}"
    )


def _waits(placement: Placement) -> str:
    pool, forecast = placement.pool, placement.forecast
    assert pool is not None
    assert forecast is not None
    assert placement.best is not None
    _, start_s, cause, _ = forecast
    words = f"waits {start_s:.2f} s for {pool.pool} ({WORDS[cause]})"
    words = f"{words} and {_ends(placement, placement.best)}"
    free = _nearest_free(placement)
    if free is None:
        return f"{words}; no pool could start it now"
    verb = "trains with" if placement.job.kind == "train" else "would need"
    return f"{words}; {_name(placement, free)} is free but {verb} {_with(placement, free)}"


def _ends(placement: Placement, i: int) -> str:
    """Of a training only the next slice is predicted: what counts is its speed."""
    if placement.job.kind == "train":
        return f"trains a slice with {_with(placement, i)}"
    return f"ends in {_with(placement, i)}"


def _with(placement: Placement, i: int) -> str:
    if placement.job.kind != "train":
        return f"{_forecast(placement, i)[0]:.2f} s"
    assert placement.view is not None
    return f"{placement.view.lane.facts.train_tokens_per_s[i]:.0f} tokens/s"


def _as_next(seen: Placement) -> str:
    if seen.pool is None or seen.forecast is None:
        return f"; {reason_of(seen)}"
    assert seen.best is not None
    _, start_s, cause, _ = seen.forecast
    start = "at once" if cause is Cause.FREE else f"in {start_s:.2f} s"
    verb = "train with" if seen.job.kind == "train" else "end in"
    where = f"on {seen.pool.pool} and {verb} {_with(seen, seen.best)}"
    return f"; behind the first of them it would start {start} {where}"


_OUTCOMES = {Action.LEASE: "chosen", Action.WAIT: "wait", Action.REFUSED: "too late"}


def _name(placement: Placement, i: int) -> str:
    assert placement.view is not None
    return placement.view.look.roster.names[i]


def _nearest(placement: Placement, count: int) -> list[int]:
    """The pool of choice, then those where it would end next."""
    rows, best = placement.rows, placement.best
    if rows is None or best is None:
        return []
    rows = rows.copy()
    rows[best] = -1.0
    everywhere = count >= len(rows)
    first = np.arange(len(rows)) if everywhere else np.argpartition(rows, count)[:count]
    order = first[np.lexsort((first, rows[first]))]
    return [int(i) for i in order if rows[i] < math.inf]


def _nearest_free(placement: Placement) -> int | None:
    """The pool where it would end first of those that could start it at once."""
    if not placement.spurns:
        return None
    near = _nearest(placement, FREE_SOUGHT)
    return next((i for i in near if _forecast(placement, i)[2] is Cause.FREE), None)


def _forecast(placement: Placement, i: int) -> Forecast:
    """How it would have fared in a pool at the moment of the decision."""
    view, need = placement.view, placement.need
    assert view is not None
    assert need is not None
    if i == placement.best:
        assert placement.forecast is not None
        return placement.forecast
    return at(placement.job, view, i, view.look.was(i, placement.moment), need)


def _forecasts(placement: Placement) -> list[tuple[int, PoolVerdict]]:
    return [(i, _verdict(placement, i)) for i in _nearest(placement, VERDICTS_KEPT)]


def _verdict(placement: Placement, i: int) -> PoolVerdict:
    finish_s, start_s, cause, batch = _forecast(placement, i)
    outcome = _OUTCOMES[placement.action] if i == placement.best else "slower"
    start = "" if cause is Cause.FREE else f", {start_s:.2f} s until it could start"
    return PoolVerdict(
        pool=_name(placement, i),
        outcome=outcome,
        reason=f"{WORDS[cause]}{start}; {_work(placement, i, finish_s - start_s, batch)}",
        # the end of a training is not predicted, and that of a slice says nothing of it
        finish_s=None if placement.job.kind == "train" else round(finish_s, 3),
    )


def _work(placement: Placement, i: int, whole_s: float, batch: int) -> str:
    """What the time from start to end is made of."""
    job, view, need = placement.job, placement.view, placement.need
    assert view is not None
    assert need is not None
    if job.kind == "train":
        return f"trains with {_with(placement, i)}"
    tokens = unread(i, need)
    prefill_s, made_s = tokens * view.read_s.item(i), decode_s(view, i, need, batch)
    before_s = whole_s - prefill_s - made_s
    load_s = min(before_s, view.lane.model_s(i))
    parts = [f"loading {job.model} {load_s:.2f} s"] if load_s > SHOWN_S else []
    if before_s - load_s > SHOWN_S:
        parts.append(f"prompts before it {before_s - load_s:.2f} s")
    parts.append(f"prefill of about {tokens} tokens {prefill_s:.2f} s")
    if tokens < need.prompt:
        parts.append(f"{need.prompt - tokens} more are in its cache")
    if need.tokens:
        parts.append(f"{need.tokens} tokens in a batch of {batch} {made_s:.2f} s")
    return ", ".join(parts)


def _refusals(placement: Placement, room: int) -> dict[int, PoolVerdict]:
    return {
        i: PoolVerdict(pool=_name(placement, i), outcome="refused", reason=one.reason)
        for i, one in islice(_refused(placement), max(room, 0))
    }


def _refused(placement: Placement) -> Iterator[tuple[int, Refused]]:
    """The pools that could not run it, each with the reason."""
    job, view, need = placement.job, placement.view, placement.need
    if view is None or need is None:
        return
    long = too_long(job, view.model)
    limits = view.lane.facts.kv_limit
    for i, pool in enumerate(view.look.roster.pools):
        no = refusal(job, pool, view.model, view.look.room(i))
        if no is None and long is not None:
            no = long
        elif no is None and need.kv_tokens > limits[i]:
            no = kv_too_small(need.kv_tokens, pool)
        if no is not None:
            yield i, no
