"""How much of a pool idled although a job that waited would have ended sooner there than it did.
Owns the measure; knows nothing of schedulers.

At evenly spaced times: the free slots of a pool, at most as many as there are such jobs, as a share
of its slots. While the pool reads a prompt it counts as busy whatever is free, since prompts are
read one after the other. A job counts if, started there at that time, it would have ended before it
did in fact: its prompt is read while the pool read no other in fact, behind those of the jobs
counted before it, then it decodes at the pace that the pool's steps had in fact, or would have had
where it stood idle. That the others would have decoded a little slower is not counted."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from routing.simulation.paces import Aboard, Floats
from routing.simulation.pool import SimulatedPool
from routing.simulation.request import Fate

SAMPLES = 400
LOOKS = 40_000
"""Samples of one pool in all: a large cluster is looked at less often."""
FEWEST_SAMPLES = 40


def idle_shares(pools: Sequence[SimulatedPool], fates: Sequence[Fate]) -> list[float]:
    """The mean over time from the first arrival to the last end, for each pool."""
    history = _History.of(fates)
    begin_s, end_s = history.arrive_s.min(), history.finish_s.max()
    count = max(min(SAMPLES, LOOKS // len(pools)), FEWEST_SAMPLES)
    shares = [0.0] * len(pools)
    aboard = [pool.paces.closed() for pool in pools]
    for now_s in begin_s + (end_s - begin_s) * (np.arange(count) + 0.5) / count:
        waiting = history.waiting(now_s)
        if not waiting.size:
            continue
        running = history.running(now_s)
        where = history.pool[running]
        for index, pool in enumerate(pools):
            here = running[where == index]
            free = pool.described.slots - here.size
            if free > 0 and not aboard[index].reads(now_s):
                sooner = _sooner(history, pool, aboard[index], _Moment(now_s, waiting, here, free))
                shares[index] += sooner / pool.described.slots
    return [share / count for share in shares]


@dataclass(frozen=True, slots=True)
class _Moment:
    now_s: float
    # rows of the history: jobs that wait, in the order they are served, and those that run here
    waiting: NDArray[np.intp]
    here: NDArray[np.intp]
    # slots here
    free: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _History:
    """A row a stint, in the order in which stints would be served: from when the job waited for
    it, when it began, when it ended, and when the job did."""

    arrive_s: Floats
    start_s: Floats
    end_s: Floats
    finish_s: Floats
    # tokens that were to be read, and to be made from then on
    prompt: Floats
    output: Floats
    kv: Floats
    pool: NDArray[np.intp]

    @classmethod
    def of(cls, fates: Sequence[Fate]) -> "_History":
        rows = [
            (
                (fate.rank, stint.since_s),
                (stint.since_s, stint.start_s, stint.end_s, fate.finish_s),
                (stint.prompt, fate.request.output - stint.made, fate.request.kv_tokens),
                stint.pool,
            )
            for fate in fates
            for stint in fate.stints
        ]
        rows.sort()
        times = np.array([row[1] for row in rows]).T
        tokens = np.array([row[2] for row in rows], float).T
        return cls(
            arrive_s=times[0],
            start_s=times[1],
            end_s=times[2],
            finish_s=times[3],
            prompt=tokens[0],
            output=tokens[1],
            kv=tokens[2],
            pool=np.array([row[3] for row in rows], np.intp),
        )

    def waiting(self, now_s: float) -> NDArray[np.intp]:
        return np.flatnonzero((self.arrive_s <= now_s) & (self.start_s > now_s))

    def running(self, now_s: float) -> NDArray[np.intp]:
        return np.flatnonzero((self.start_s <= now_s) & (self.end_s > now_s))


def _sooner(history: _History, pool: SimulatedPool, aboard: Aboard, at: _Moment) -> int:
    """How many of those that wait would have ended sooner in this pool, one behind the other."""
    room = pool.described.kv_tokens - history.kv[at.here].sum()
    begin_s = max(at.now_s, pool.there_s(at.now_s))
    left, before = at.waiting, 0.0
    count = 0
    while left.size and count < at.free:
        finish_s = aboard.finish_s(begin_s, before, history.prompt[left], history.output[left])
        found = (finish_s < history.finish_s[left]) & (history.kv[left] <= room)
        left = left[found]
        if left.size:
            count += 1
            room -= history.kv[left[0]]
            before += history.prompt[left[0]]
            left = left[1:]
    return count
