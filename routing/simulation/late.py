"""Plain rules that bind a request when a pool has room. Owns the rules and their one queue; knows
nothing of the policy.

Only the first in the queue is looked at. It waits by class, then by arrival, but for the rule
that is first come first served by name."""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence

from routing.order import RANKS
from routing.simulation.early import is_cpu
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Start
from routing.simulation.request import Fate, Request

Pick = Callable[[Request, list[SimulatedPool]], SimulatedPool]
"""Chooses one of the pools that could take the request now."""


class BoundLate:
    """A scheduler: one queue for all pools."""

    def __init__(
        self, pools: Sequence[SimulatedPool], pick: Pick, *, by_class: bool = True
    ) -> None:
        self._pools = pools
        self._pick = pick
        self._by_class = by_class
        self._queue: list[tuple[int, int, Request]] = []
        self._index = {id(pool): index for index, pool in enumerate(pools)}

    def arrive(self, request: Request, _now_s: float) -> None:
        rank = RANKS[request.job_class] if self._by_class else 0
        heapq.heappush(self._queue, (rank, request.number, request))

    def end(self, _fate: Fate) -> None:
        """Room is looked up in the pools."""

    def starts(self, _now_s: float) -> Iterator[Start]:
        while self._queue:
            request = self._queue[0][2]
            open_now = [pool for pool in self._pools if pool.fits(request.kv_tokens)]
            if not open_now:
                return
            heapq.heappop(self._queue)
            chosen = self._pick(request, open_now)
            yield Start(request=request, pool=self._index[id(chosen)])

    def wake_s(self, _now_s: float) -> float:
        return math.inf


def accelerator_first(request: Request, pools: list[SimulatedPool]) -> SimulatedPool:
    """The fastest accelerator that has room; only if all are full, the fastest CPU."""
    return min(pools, key=lambda pool: (is_cpu(pool), _full_work_s(request, pool)))


def highest_free_share(_request: Request, pools: list[SimulatedPool]) -> SimulatedPool:
    """The pool with the largest share of its slots free."""
    return max(pools, key=lambda pool: pool.free / pool.described.slots)


def earliest_finish(request: Request, pools: list[SimulatedPool]) -> SimulatedPool:
    """Of the pools that have room, the one that ends it first."""
    return min(
        pools,
        key=lambda pool: pool.described.work_s(request.prompt, request.output, pool.in_flight + 1),
    )


def _full_work_s(request: Request, pool: SimulatedPool) -> float:
    described = pool.described
    return described.work_s(request.prompt, request.output, described.slots)
