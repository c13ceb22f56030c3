"""How much of a pool idled although a job that waited would have ended sooner there than it did.
Owns the measure; knows nothing of schedulers.

At evenly spaced times: the free slots of a pool, at most as many as there are such jobs, as a
share of its slots. A job counts if, started there at that time beside those that run there, it
would have ended before it did in fact; what it would have cost the others is not counted."""

from collections.abc import Sequence

from routing.simulation.described import DescribedPool
from routing.simulation.request import Fate

SAMPLES = 400


def idle_shares(pools: Sequence[DescribedPool], fates: Sequence[Fate]) -> list[float]:
    """The mean over time from the first arrival to the last end, for each pool."""
    import numpy as np

    arrive = np.array([fate.request.arrive_s for fate in fates])
    start = np.array([fate.start_s for fate in fates])
    finish = np.array([fate.finish_s for fate in fates])
    prompt = np.array([fate.request.prompt - fate.reused for fate in fates])
    output = np.array([fate.request.output for fate in fates])
    kv = np.array([fate.request.kv_tokens for fate in fates])
    where = np.array([fate.pool for fate in fates])
    begin_s, end_s = arrive.min(), finish.max()
    times = begin_s + (end_s - begin_s) * (np.arange(SAMPLES) + 0.5) / SAMPLES
    shares = [0.0] * len(pools)
    for now_s in times:
        waiting = np.flatnonzero((arrive <= now_s) & (start > now_s))
        if not waiting.size:
            continue
        running = (start <= now_s) & (finish > now_s)
        for index, pool in enumerate(pools):
            here = running & (where == index)
            busy = int(here.sum())
            if busy >= pool.slots:
                continue
            step_s = pool.step_s + pool.step_s_per_sequence * (busy + 1)
            work_s = prompt[waiting] / pool.prefill_tokens_per_s + output[waiting] * step_s
            room = pool.kv_tokens - kv[here].sum()
            sooner = (now_s + work_s < finish[waiting]) & (kv[waiting] <= room)
            shares[index] += min(pool.slots - busy, int(sooner.sum())) / pool.slots
    return [share / SAMPLES for share in shares]
