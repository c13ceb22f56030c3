"""A few minutes of a trace, made to fit a cluster, or the cluster to it. Owns the choice of rows
and the load; knows nothing of who plays them."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from noidle.errors import ConfigError
from routing.simulation.described import Described, DescribedPool
from routing.simulation.fitting import fit, released
from routing.simulation.lower_bound import lower_bound_s
from routing.simulation.request import Request
from routing.simulation.trace import Row

_TIMES = ("step_s", "step_s_per_sequence")


@dataclass(frozen=True, slots=True, kw_only=True)
class Slice:
    """What both sides play."""

    described: Described
    # the first comes at 0
    requests: list[Request]
    # how it was made, in words
    words: list[str]


def cut(rows: Sequence[Row], start_s: float, seconds: float) -> list[Row]:
    """The rows that come in that time, from 0 on.

    Raises:
        ConfigError: fewer than two come then.
    """
    found = [row for row in rows if start_s <= row.arrive_s < start_s + seconds]
    if len(found) < 2:
        raise ConfigError(
            f"--start {start_s:g} --seconds {seconds:g}: {len(found)} requests of the trace come "
            f"then; allowed is a time in which two do, of {rows[-1].arrive_s:.0f} s"
        )
    return [replace(row, arrive_s=row.arrive_s - found[0].arrive_s) for row in found]


def fit_cluster(rows: Sequence[Row], shape: Described, load: float, seconds: float) -> Slice:
    """Arrivals stay as they are; all pools become slower or faster by one factor, so that at their
    best they would take `load * seconds` for the whole."""
    fitted = fit(rows, shape)
    requests = _apart(fitted.requests)
    factor = load * seconds / _at_once_s(shape, requests)
    pools = [_slowed(pool, factor).model_dump() for pool in shape.pools]
    # no copy: that would keep what the shape reckoned from its own pools
    described = Described.model_validate(shape.model_dump() | {"pools": pools})
    words = [*fitted.words, f"pools: all times multiplied by {factor:.4g}, for a load of {load:g}"]
    return Slice(described=described, requests=requests, words=words)


def fit_trace(rows: Sequence[Row], described: Described, load: float, seconds: float) -> Slice:
    """Pools stay as they are: as many rows, from the first, as they need `load * seconds` for at
    their best, with the gaps between them stretched to `seconds`."""
    fitted = fit(rows, described)
    requests = _apart(fitted.requests)
    count = _count(requests, described, load * seconds)
    taken = requests[:count]
    factor = seconds / taken[-1].arrive_s if taken[-1].arrive_s else 1.0
    moved = [replace(one, arrive_s=one.arrive_s * factor) for one in taken]
    words = [
        *fitted.words,
        f"arrivals: the first {count} rows, gaps multiplied by {factor:.4g}, for a load of"
        f" {load:g}",
    ]
    return Slice(described=described, requests=moved, words=words)


def _apart(requests: Sequence[Request]) -> list[Request]:
    """No prompt begins as another: what a cache would save is not compared here."""
    return [replace(one, blocks=(), block_tokens=1) for one in requests]


def _at_once_s(described: Described, requests: Sequence[Request]) -> float:
    return lower_bound_s(described, released(requests).requests)


def _count(requests: Sequence[Request], described: Described, work_s: float) -> int:
    """The most that take no longer; at least two."""
    low, high = 2, len(requests)
    while low < high:
        middle = (low + high + 1) // 2
        if _at_once_s(described, requests[:middle]) <= work_s:
            low = middle
        else:
            high = middle - 1
    return low


def _slowed(pool: DescribedPool, factor: float) -> DescribedPool:
    times = {name: getattr(pool, name) * factor for name in _TIMES}
    prefill = pool.prefill_tokens_per_s / factor
    return pool.model_copy(update={"prefill_tokens_per_s": prefill, **times})
