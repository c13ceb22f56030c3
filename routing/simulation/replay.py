"""Virtual time: requests come, a scheduler starts them, pools run them. Owns the order of events;
knows nothing of how a scheduler chooses or of what is made of the outcome."""

import heapq
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol

from routing.simulation.pool import SimulatedPool
from routing.simulation.request import Fate, Request


@dataclass(frozen=True, slots=True, kw_only=True)
class Start:
    """A scheduler's decision."""

    request: Request
    # index of the pool
    pool: int
    # virtual time at which the run should end; absent where nothing is predicted
    predicted_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evict:
    """A run leaves its pool; the request may be started again."""

    pool: int
    # of the request
    number: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Teach:
    """A training of that rank begins, or goes on, in a pool."""

    pool: int
    rank: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Rest:
    """It leaves; paused: before its slice was over."""

    pool: int
    paused: bool


Action = Start | Evict | Teach | Rest


class Scheduler(Protocol):
    """Told what happens, asked what to do. A pool takes nothing beyond its slots and KV."""

    def arrive(self, request: Request, now_s: float, /) -> None: ...

    def end(self, fate: Fate, /) -> None: ...

    def starts(self, now_s: float, /) -> Iterator[Action]:
        """Each is carried out before the next is asked for."""
        ...

    def wake_s(self, now_s: float, /) -> float:
        """When it wants to look again though nothing happens; infinite for never."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """In order of the first start."""

    fates: list[Fate]
    pools: list[SimulatedPool]


class Replay:
    """One run through a trace; `requests` are in order of arrival."""

    def __init__(
        self,
        requests: Sequence[Request],
        pools: list[SimulatedPool],
        scheduler: Scheduler,
    ) -> None:
        self._requests = requests
        self._scheduler = scheduler
        self.pools = pools
        self._fates: dict[int, Fate] = {}
        self._arrived = 0
        # next events of pools; those whose number is not the pool's current one are outdated
        self._events: list[tuple[float, int, int]] = []
        self._current = [0] * len(pools)

    def run(self) -> Outcome:
        """Until every request has ended.

        Raises:
            AssertionError: the scheduler left requests although nothing runs.
        """
        now_s = 0.0
        ended = 0
        while ended < len(self._requests):
            wake_s = self._scheduler.wake_s(now_s)
            now_s = min(self._next_arrival_s(), self._next_event_s(), wake_s)
            assert now_s < math.inf, "requests wait, and nothing will happen"
            news = self._end_runs(now_s)
            ended += news
            news += self._arrive(now_s)
            # that a prompt was read changes nothing for a scheduler
            if news or now_s >= wake_s:
                self._start(now_s)
        for pool in self.pools:
            pool.advance(now_s)
        return Outcome(fates=list(self._fates.values()), pools=self.pools)

    def _next_arrival_s(self) -> float:
        left = self._arrived < len(self._requests)
        return self._requests[self._arrived].arrive_s if left else math.inf

    def _next_event_s(self) -> float:
        while self._events and self._events[0][2] != self._current[self._events[0][1]]:
            heapq.heappop(self._events)
        return self._events[0][0] if self._events else math.inf

    def _end_runs(self, now_s: float) -> int:
        count = 0
        while self._next_event_s() <= now_s:
            at_s, index, _ = heapq.heappop(self._events)
            ended = self.pools[index].happen(at_s)
            self._plan(index)
            for fate in ended:
                self._scheduler.end(fate)
            count += len(ended)
        return count

    def _arrive(self, now_s: float) -> int:
        before = self._arrived
        while self._next_arrival_s() <= now_s:
            self._scheduler.arrive(self._requests[self._arrived], now_s)
            self._arrived += 1
        return self._arrived - before

    def _start(self, now_s: float) -> None:
        changed = set()
        for action in self._scheduler.starts(now_s):
            pool = self.pools[action.pool]
            pool.advance(now_s)
            match action:
                case Start():
                    pool.start(self._fate(action, now_s))
                case Evict():
                    pool.evict(action.number)
                case Teach():
                    pool.teach(action.rank)
                case Rest():
                    pool.rest(paused=action.paused)
            changed.add(action.pool)
        for index in changed:
            self._plan(index)

    def _fate(self, start: Start, now_s: float) -> Fate:
        request, pool, predicted_s = start.request, start.pool, start.predicted_s
        fate = self._fates.get(request.number)
        if fate is None:
            fate = Fate(request=request, pool=pool, start_s=now_s, predicted_s=predicted_s)
            self._fates[request.number] = fate
        else:
            fate.resume(pool, now_s, predicted_s)
        return fate

    def _plan(self, index: int) -> None:
        self._current[index] += 1
        next_s = self.pools[index].next_s()
        if next_s < math.inf:
            heapq.heappush(self._events, (next_s, index, self._current[index]))
