"""Plain rules that bind a request to a pool when it comes. Owns the rules and the queues before
the pools; knows nothing of the policy.

In its pool's queue a request waits by class, then by arrival. All rules are told the true lengths
and rates, and may bind only to pools whose whole KV cache holds the request."""

import heapq
import math
import random
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from routing.order import RANKS
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Start
from routing.simulation.request import Fate, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a rule may look at."""

    request: Request
    # indices of the pools to choose from
    able: list[int]
    # by index: how many each pool has, waiting and running
    jobs: Sequence[int]
    now_s: float


Rule = Callable[[Choice], int]


class BoundEarly:
    """A scheduler: one queue a pool."""

    def __init__(self, pools: Sequence[SimulatedPool], rule: Rule) -> None:
        self._pools = pools
        self._rule = rule
        self._queues: list[list[tuple[int, int, Request]]] = [[] for _ in pools]
        self._jobs = [0] * len(pools)
        self._touched: set[int] = set()

    def arrive(self, request: Request, now_s: float) -> None:
        index = self._rule(
            Choice(
                request=request,
                able=able(self._pools, request),
                jobs=self._jobs,
                now_s=now_s,
            )
        )
        entry = (RANKS[request.job_class], request.number, request)
        heapq.heappush(self._queues[index], entry)
        self._jobs[index] += 1
        self._touched.add(index)

    def end(self, fate: Fate) -> None:
        self._jobs[fate.pool] -= 1
        self._touched.add(fate.pool)

    def starts(self, _now_s: float) -> Iterator[Start]:
        for index in sorted(self._touched):
            queue, pool = self._queues[index], self._pools[index]
            while queue and pool.fits(queue[0][2].kv_tokens):
                yield Start(request=heapq.heappop(queue)[2], pool=index)
        self._touched.clear()

    def wake_s(self, _now_s: float) -> float:
        return math.inf


class StaticByLength:
    """Short requests to the CPUs, long ones to the accelerators, and within each in turn. The
    border gives the CPUs the share of the trace's work that their speed is of the cluster's:
    tuned on the very trace it is measured on."""

    def __init__(self, pools: Sequence[SimulatedPool], requests: Sequence[Request]) -> None:
        self._cpu = frozenset(i for i, pool in enumerate(pools) if is_cpu(pool))
        self._border = _border(pools, requests, self._cpu)
        self._turn = RoundRobin()

    def __call__(self, choice: Choice) -> int:
        short = choice.request.prompt + choice.request.output <= self._border
        side = [index for index in choice.able if (index in self._cpu) == short]
        return self._turn(replace(choice, able=side or choice.able))


class RoundRobin:
    """Each pool in turn."""

    def __init__(self) -> None:
        self._last = -1

    def __call__(self, choice: Choice) -> int:
        self._last = next((i for i in choice.able if i > self._last), choice.able[0])
        return self._last


class Random:
    """Each pool as likely."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def __call__(self, choice: Choice) -> int:
        return self._dice.choice(choice.able)


def shortest_queue(choice: Choice) -> int:
    """The pool that has the fewest, waiting and running."""
    return min(choice.able, key=choice.jobs.__getitem__)


class TwoChoices:
    """The emptier of two pools drawn at random (Mitzenmacher 2001)."""

    def __init__(self, dice: random.Random) -> None:
        self._dice = dice

    def __call__(self, choice: Choice) -> int:
        drawn = self._dice.sample(choice.able, min(2, len(choice.able)))
        return min(drawn, key=choice.jobs.__getitem__)


class EarliestFinish:
    """Where it is predicted to end first, behind all that was bound there before: each pool's
    slots as a list schedule, runs at the speed of a full batch."""

    def __init__(self, pools: Sequence[SimulatedPool]) -> None:
        self._pools = [pool.described for pool in pools]
        self._ends: list[list[float]] = [[] for _ in pools]

    def __call__(self, choice: Choice) -> int:
        found = {i: self._finish_s(choice.request, i, choice.now_s) for i in choice.able}
        best = min(choice.able, key=found.__getitem__)
        ends = self._ends[best]
        if len(ends) >= self._pools[best].slots:
            heapq.heapreplace(ends, found[best])
        else:
            heapq.heappush(ends, found[best])
        return best

    def _finish_s(self, request: Request, index: int, now_s: float) -> float:
        pool, ends = self._pools[index], self._ends[index]
        while ends and ends[0] <= now_s:
            heapq.heappop(ends)
        full = len(ends) >= pool.slots
        batch = min(len(ends) + 1, pool.slots)
        work_s = pool.work_s(request.prompt, request.output, batch)
        return (ends[0] if full else now_s) + work_s


def able(pools: Sequence[SimulatedPool], request: Request) -> list[int]:
    """The pools whose KV cache could ever hold it."""
    kv = request.kv_tokens
    return [index for index, pool in enumerate(pools) if kv <= pool.described.kv_tokens]


def is_cpu(pool: SimulatedPool) -> bool:
    return pool.described.engine == "cpu"


def _border(
    pools: Sequence[SimulatedPool], requests: Sequence[Request], cpu: frozenset[int]
) -> int:
    """Tokens of prompt and answer up to which a request is short."""
    mean_prompt = sum(one.prompt for one in requests) // len(requests)
    mean_output = sum(one.output for one in requests) // len(requests)
    speeds = [1 / pool.described.share_s(mean_prompt, mean_output) for pool in pools]
    share = sum(speeds[index] for index in cpu) / sum(speeds)
    sizes = sorted(one.prompt + one.output for one in requests)
    left = share * sum(sizes)
    for size in sizes:
        left -= size
        if left < 0:
            return size - 1
    return sizes[-1]
