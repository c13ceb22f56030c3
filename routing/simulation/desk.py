"""The pump's place in a simulation: the policy of production, asked as the pump asks it. Owns what
the board and the pump remember between two looks; knows nothing of how fast pools really are."""

import math
from collections.abc import Iterator, Sequence

from noidle.snapshot import PoolSnapshot
from routing.arrivals import Arrivals
from routing.board import HeldJob, PoolLoad
from routing.bounds import HEADS_A_CLASS
from routing.cluster import Cluster
from routing.ended import Run
from routing.experience import Experience
from routing.memory_shelves import HeldSets
from routing.picture import SNAPSHOTS_S
from routing.placement import Placement
from routing.policy import decide
from routing.promises import Promises
from routing.pump import DEEP_S, FEWEST_HEADS, HEADS, TIDY_S
from routing.rhythm import Timer
from routing.roster import Roster
from routing.simulation.described import MODEL, Described
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Start
from routing.simulation.request import EPOCH_MS, Fate, Request
from routing.warm import Warm, room_bytes

LOOK_S_A_POOL = 1e-5
"""A look takes about so long for each pool of the cluster; the next one comes behind it."""


class Desk:
    """A scheduler. Leases reach their pool at once: the milliseconds between are not modelled."""

    def __init__(self, described: Described, pools: Sequence[SimulatedPool]) -> None:
        self._described = described
        self._pools = pools
        self._index = {pool.described.pool: index for index, pool in enumerate(pools)}
        self._models = {described.model.name: described.model}
        self._requests: dict[str, Request] = {}
        self._held: dict[str, HeldJob] = {}
        self._sets = HeldSets()
        self._promises = Promises()
        self._roster = Roster()
        self._experience = Experience()
        self._warm = Warm()
        self._arrivals = Arrivals()
        self._learn = Timer(lambda: self._now_s, TIDY_S)
        self._now_s = 0.0
        self._next_look_s = 0.0
        # something happened during a look
        self._missed = False
        self._turn = 0
        self._spurned = False
        self._deep = Timer(lambda: self._now_s, DEEP_S)
        self._published: tuple[PoolSnapshot, ...] = ()
        self._published_loaded: tuple[bool, ...] = ()

    def arrive(self, request: Request, _now_s: float) -> None:
        job = request.held()
        self._arrivals.note([job], self._now_ms())
        self._requests[job.id] = request
        self._held[job.id] = job
        self._sets.add(_held_set(job), job.order, job.id)

    def end(self, fate: Fate) -> None:
        job = self._requests.pop(fate.request.id)
        run = Run(
            job=job.id,
            kind="generate",
            model=MODEL,
            label=job.label,
            leased_ms=_clock_ms(fate.start_s),
            first_ms=_clock_ms(fate.first_s),
            ended_ms=_clock_ms(fate.finish_s),
            tokens=job.output,
            max_tokens=job.output,
        )
        self._experience.learn([(run, self._promises.end(job.id))])

    def wake_s(self, now_s: float) -> float:
        # without a free slot only the end of a run changes anything
        if not (self._held and self._any_free()):
            return math.inf
        return self._next_look_s if self._missed else now_s + SNAPSHOTS_S

    def starts(self, now_s: float) -> Iterator[Start]:
        self._missed = now_s < self._next_look_s
        if self._missed:
            return
        self._now_s = now_s
        self._next_look_s = now_s + LOOK_S_A_POOL * len(self._pools)
        more = True
        while more and self._held and self._any_free():
            leased = 0
            deep = self._spurned and self._deep.due()
            held = self._heads(HEADS_A_CLASS if deep else HEADS)
            placements = self._decide(held, deep=deep)
            for placement in placements:
                if placement.grant is not None:
                    leased += 1
                    yield self._lease(placement)
            self._spurned = len(held) >= HEADS and any(one.spurns for one in placements)
            more = leased > 0 and len(held) >= FEWEST_HEADS

    def _any_free(self) -> bool:
        return any(pool.free > 0 for pool in self._pools)

    def _heads(self, per_set: int) -> list[HeldJob]:
        self._turn += 1
        ids = self._sets.heads(per_set, HEADS_A_CLASS, self._turn)
        return [self._held[job_id] for job_id in ids]

    def _decide(self, held: list[HeldJob], *, deep: bool) -> list[Placement]:
        loads = {
            pool.described.pool: PoolLoad(in_flight=pool.in_flight, kv_tokens=pool.kv_tokens)
            for pool in self._pools
        }
        promises = self._promises.settle(loads)
        if self._learn.due():
            self._experience.publish(promises, self._now_ms())
        cluster = Cluster(
            pools=self._snapshots(),
            loads=loads,
            models=self._models,
            promises=promises,
            warm=self._warm.where,
            urgent_per_s=self._arrivals.per_s(self._now_ms()),
            serving=self._promises.serving,
            lifted=self._promises.lifted,
            drag=self._experience.drag,
            lengths=self._experience.lengths,
        )
        return decide(held, cluster, self._now_ms(), self._roster, deep=deep)

    def _lease(self, placement: Placement) -> Start:
        job, pool, forecast = placement.job, placement.pool, placement.forecast
        assert pool is not None
        assert forecast is not None
        self._promises.make(placement, self._now_ms())
        self._warm.note(job, pool.pool, room_bytes(placement))
        self._sets.remove(_held_set(job), job.order, job.id)
        del self._held[job.id]
        return Start(
            request=self._requests[job.id],
            pool=self._index[pool.pool],
            predicted_s=self._now_s + forecast[0],
        )

    def _snapshots(self) -> tuple[PoolSnapshot, ...]:
        loaded = tuple(pool.loaded(self._now_s) for pool in self._pools)
        if loaded != self._published_loaded:
            weight_bytes = self._described.weight_bytes
            self._published = tuple(
                pool.described.snapshot(weight_bytes, loaded=yes)
                for pool, yes in zip(self._pools, loaded, strict=True)
            )
            self._published_loaded = loaded
        return self._published

    def _now_ms(self) -> int:
        return _clock_ms(self._now_s)


def _clock_ms(virtual_s: float) -> int:
    return EPOCH_MS + int(virtual_s * 1000)


def _held_set(job: HeldJob) -> str:
    """As noidle.acceptance names it, from what is left of the job here."""
    size = (job.prompt_bytes // 3 + job.max_tokens).bit_length()
    return f"{job.job_class.value}:{job.kind}|{job.model}|*|*|{size}"
