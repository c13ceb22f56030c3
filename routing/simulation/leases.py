"""The leases of a simulation, as its room maker sees them. Owns who was asked to leave, and when it
will have left; knows nothing of why.

The rules are those of the board's scripts running and preempt."""

import heapq
import math
from collections.abc import Callable, Sequence, Set
from dataclasses import dataclass

from noidle.results import Decision
from routing.board import HeldJob, PumpRole
from routing.bounds import PREEMPTIONS_IN_A_ROW
from routing.running import Preemption, RunningJob
from routing.simulation.pool import SimulatedPool
from routing.simulation.request import clock_ms

ROLE = PumpRole(router="simulation", fence=1)


@dataclass(slots=True)
class _Lease:
    job: HeldJob
    pool: int
    token: str
    leased_s: float
    leaving: bool = False


class Leases:
    """Of all jobs that run."""

    def __init__(
        self, pools: Sequence[SimulatedPool], held: Set[str], clock: Callable[[], float]
    ) -> None:
        self._pools = pools
        self._index = {pool.described.pool: index for index, pool in enumerate(pools)}
        # ids of jobs that wait
        self._held = held
        self._clock = clock
        self._leases: dict[str, _Lease] = {}
        self._in_pool: list[dict[str, _Lease]] = [{} for _ in pools]
        # preemptions in a row
        self._rows: dict[str, int] = {}
        self._departures: list[tuple[float, str, str]] = []
        self._tokens = 0

    def add(self, job: HeldJob, pool: int) -> None:
        self._tokens += 1
        lease = _Lease(job, pool, str(self._tokens), self._clock())
        self._leases[job.id] = self._in_pool[pool][job.id] = lease

    def end(self, job_id: str, *, whole: bool = True) -> HeldJob:
        """`whole`: it went through, so that it may be preempted anew as often."""
        lease = self._leases.pop(job_id)
        del self._in_pool[lease.pool][job_id]
        if whole:
            self._rows.pop(job_id, None)
        return lease.job

    def departs_s(self) -> float:
        """When the next one will have left."""
        return self._departures[0][0] if self._departures else math.inf

    def departed(self) -> list[tuple[HeldJob, int]]:
        """Those that have left by now, and from which pool; they are no leases any more."""
        found = []
        while self.departs_s() <= self._clock():
            _, job_id, token = heapq.heappop(self._departures)
            lease = self._leases.get(job_id)
            if lease is not None and lease.token == token:
                found.append((self.end(job_id, whole=False), lease.pool))
        return found

    def running(self, pools: list[str]) -> list[RunningJob]:
        return [
            self._shown(name, lease)
            for name in pools
            for lease in self._in_pool[self._index[name]].values()
        ]

    def _shown(self, pool: str, lease: _Lease) -> RunningJob:
        job = lease.job
        simulated = self._pools[lease.pool]
        trains = job.kind == "train"
        return RunningJob(
            id=job.id,
            kind=job.kind,
            model=job.model,
            job_class=job.job_class,
            pool=pool,
            token=lease.token,
            claimed_ms=clock_ms(lease.leased_s),
            kv_tokens=0 if trains else simulated.kv_of(int(job.id)),
            memory_bytes=0,
            progress=0 if trains else simulated.made(int(job.id), self._clock()),
            goal=None,
            preemptions=self._rows.get(job.id, 0),
            leaving=lease.leaving,
        )

    def preempt(self, _role: PumpRole, wishes: list[Preemption]) -> list[bool]:
        return [self._preempt(wish) for wish in wishes]

    def _preempt(self, wish: Preemption) -> bool:
        lease = self._leases.get(wish.job)
        if lease is None or lease.token != wish.token:
            return False
        row = self._rows.get(wish.job, 0)
        if lease.leaving:
            return True
        if wish.for_job not in self._held or row >= PREEMPTIONS_IN_A_ROW:
            return False
        lease.leaving = True
        self._rows[wish.job] = row + 1
        left_s = self._clock() + self._pools[lease.pool].leaves_s()
        heapq.heappush(self._departures, (left_s, wish.job, lease.token))
        return True

    def note(self, decisions: list[Decision]) -> None:
        """Nobody asks."""
