"""A placement in words: the decision as the board keeps it and people read it. Owns the
sentences; knows nothing of how a choice is made."""

from itertools import islice

from noidle.results import Decision, PoolVerdict
from routing.placement import Action, Cause, Placement

VERDICTS_KEPT = 12
"""With more pools than this the rest is only counted; decisions lie in Redis."""
LOAD_SHOWN_S = 0.005
"""Shorter waits for a model are rounding."""
REASONS_NAMED = 3
"""Refusals that the reason of an unplaceable job spells out."""


def decision_of(placement: Placement, now_ms: int) -> Decision:
    """The decision with a verdict for each pool, the best first, refusals last."""
    pool = placement.pool
    verdicts = _forecasts(placement)
    verdicts += _refusals(placement, VERDICTS_KEPT - len(verdicts))
    more = len(placement.lanes) + len(placement.refused) - len(verdicts)
    return Decision(
        job=placement.job.id,
        at_ms=now_ms,
        action=placement.action.value,
        pool=pool.pool if pool else None,
        queue=placement.grant.queue if placement.grant else None,
        reason=reason_of(placement) + (f" (and {more} more pools)" if more > 0 else ""),
        verdicts=tuple(verdicts),
    )


def reason_of(placement: Placement) -> str:
    """The decision in one sentence."""
    if placement.action is Action.UNPLACEABLE:
        return _unplaceable(placement)
    if placement.scene is None:
        return "every slot is taken, and jobs before it wait too"
    if placement.best is None:
        return f"no pool can take it now: {_refusals_named(placement)}"
    return _leased(placement) if placement.action is Action.LEASE else _waits(placement)


def _unplaceable(placement: Placement) -> str:
    if not placement.refused:
        return "no pool is there"
    return f"no pool can run it: {_refusals_named(placement)}"


def _refusals_named(placement: Placement) -> str:
    refused = placement.refused
    named = [f"{pool} {one.reason}" for pool, one in islice(refused.items(), REASONS_NAMED)]
    more = len(refused) - len(named)
    return "; ".join(named) + (f"; and {more} more" if more > 0 else "")


def _leased(placement: Placement) -> str:
    index, pool, forecast = placement.best, placement.pool, placement.forecast
    assert index is not None
    assert pool is not None
    assert forecast is not None
    words = f"ends in {forecast[0]:.2f} s on {pool.pool}"
    others = [i for i in range(len(placement.lanes)) if i != index]
    if not others:
        return f"{words}, the only pool that can run it now"
    second = min(others, key=lambda i: placement.forecasts[i][0])
    name = placement.lanes[second].look.pool.pool
    return f"{words}; next best is {name} with {placement.forecasts[second][0]:.2f} s"


def _waits(placement: Placement) -> str:
    pool, forecast = placement.pool, placement.forecast
    assert pool is not None
    assert forecast is not None
    finish_s, start_s, cause, _ = forecast
    words = f"waits {start_s:.2f} s for {pool.pool} ({_CAUSES[cause]}) and ends in {finish_s:.2f} s"
    free = [i for i, other in enumerate(placement.forecasts) if other[2] is Cause.FREE]
    if not free:
        return f"{words}; no pool could start it now"
    nearest = min(free, key=lambda i: placement.forecasts[i][0])
    name = placement.lanes[nearest].look.pool.pool
    return f"{words}; {name} is free but would need {placement.forecasts[nearest][0]:.2f} s"


_CAUSES = {
    Cause.FREE: "a slot is free",
    Cause.FULL: "all slots are taken",
    Cause.SPARE: "its last free slot is kept from background work",
    Cause.KV: "too little KV cache is free",
    Cause.MEMORY: "too little memory is free",
    Cause.FENCED: "what is free is reserved for a job before it",
    Cause.TRAINING: "another training runs there",
    Cause.ALONE: "the job must run alone",
}


def _forecasts(placement: Placement) -> list[PoolVerdict]:
    best = placement.best
    nearest = sorted(
        range(len(placement.lanes)), key=lambda i: (i != best, placement.forecasts[i][0])
    )
    return [_verdict(placement, i) for i in nearest[:VERDICTS_KEPT]]


def _verdict(placement: Placement, index: int) -> PoolVerdict:
    finish_s, start_s, cause, _ = placement.forecasts[index]
    outcome = "slower"
    if index == placement.best:
        outcome = "chosen" if placement.action is Action.LEASE else "wait"
    start = "" if cause is Cause.FREE else f", {start_s:.2f} s until it could start"
    return PoolVerdict(
        pool=placement.lanes[index].look.pool.pool,
        outcome=outcome,
        reason=f"{_CAUSES[cause]}{start}; {_work(placement, index)}",
        finish_s=round(finish_s, 3),
    )


def _work(placement: Placement, index: int) -> str:
    """What the time from start to end is made of."""
    job, lane, need = placement.job, placement.lanes[index], placement.need
    finish_s, start_s, _, batch = placement.forecasts[index]
    assert need is not None
    if job.kind == "train":
        return f"a slice at {lane.train_tokens_per_s:.0f} tokens/s"
    prefill_s = need.prompt * lane.prefill_s
    decode_s = job.max_tokens * (lane.step_s + lane.sequence_s * batch)
    load_s = finish_s - start_s - prefill_s - decode_s
    parts = [f"loading {job.model} {load_s:.2f} s"] if load_s > LOAD_SHOWN_S else []
    parts.append(f"prefill of about {need.prompt} tokens {prefill_s:.2f} s")
    if job.max_tokens:
        parts.append(f"{job.max_tokens} tokens in a batch of {batch} {decode_s:.2f} s")
    return ", ".join(parts)


def _refusals(placement: Placement, room: int) -> list[PoolVerdict]:
    return [
        PoolVerdict(pool=pool, outcome="refused", reason=one.reason)
        for pool, one in islice(placement.refused.items(), room)
    ]
