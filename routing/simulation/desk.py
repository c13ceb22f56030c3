"""The pump's place in a simulation: the policy of production, asked as the pump asks it. Owns what
the board and the pump remember between two looks; knows nothing of how fast pools really are."""

import math
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace

from noidle.acceptance import LABEL_SHELVES
from noidle.jobs import JobClass
from noidle.snapshot import PoolSnapshot
from routing.arrivals import Arrivals
from routing.board import HeldJob, PoolLoad
from routing.bounds import HEADS_A_CLASS
from routing.cluster import Cluster
from routing.decided import Decided
from routing.ended import Run
from routing.experience import Experience
from routing.memory_shelves import HeldSets
from routing.order import RANKS
from routing.picture import SNAPSHOTS_S
from routing.placement import Placement
from routing.policy import decide
from routing.promises import Promises
from routing.pump import DEEP_S, FEWEST_HEADS, HEADS, TIDY_S
from routing.rhythm import Timer
from routing.room_maker import RoomMaker
from routing.roster import Roster
from routing.simulation.described import BYTES_PER_TOKEN, MODEL, Described
from routing.simulation.leases import ROLE, Leases
from routing.simulation.lesson import Lesson
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Action, Evict, Rest, Start, Teach
from routing.simulation.request import Fate, Request, clock_ms
from routing.waits import Waits
from routing.warm import Warm, room_bytes

LOOK_S_A_POOL = 1e-5
"""A look takes about so long for each pool of the cluster; the next one comes behind it."""


class Desk:
    """A scheduler. Leases reach their pool at once: the milliseconds between are not modelled."""

    def __init__(
        self, described: Described, pools: Sequence[SimulatedPool], *, training: bool = False
    ) -> None:
        self._described = described
        self._pools = pools
        self._index = {pool.described.pool: index for index, pool in enumerate(pools)}
        self._models = described.models
        self._requests: dict[str, Request] = {}
        self._held: dict[str, HeldJob] = {}
        self._held_of: Counter[JobClass] = Counter()
        self._sets = HeldSets()
        self._loads: dict[str, PoolLoad] = {}
        # pools with a free slot
        self._open = set(range(len(pools)))
        self._leases = Leases(pools, self._held.keys(), lambda: self._now_s)
        self._room = RoomMaker(self._leases)
        self._lesson = Lesson() if training else None
        self._promises = Promises()
        self._roster = Roster()
        self._experience = Experience()
        self._waits = Waits()
        self._warm = Warm()
        self._arrivals = Arrivals()
        self._learn = Timer(lambda: self._now_s, TIDY_S)
        self._now_s = 0.0
        self._looked_s = self._next_look_s = 0.0
        # something happened during a look
        self._missed = False
        self._turn = 0
        self._spurned = False
        self._deep = Timer(lambda: self._now_s, DEEP_S)
        self._published: tuple[PoolSnapshot, ...] = ()
        # pools whose model is not in memory yet, as published
        self._cold = frozenset(range(len(pools)))
        if self._lesson is not None:
            self._hold(self._lesson.job)

    def arrive(self, request: Request, now_s: float) -> None:
        job = request.held()
        self._arrivals.note([job], clock_ms(now_s))
        self._requests[job.id] = request
        self._hold(job)

    def end(self, fate: Fate) -> None:
        job = self._requests.pop(fate.request.id)
        run = Run(
            job=job.id,
            kind="generate",
            model=MODEL,
            label=job.label,
            leased_ms=clock_ms(fate.start_s),
            first_ms=clock_ms(fate.first_s),
            ended_ms=clock_ms(fate.finish_s),
            tokens=job.output,
            max_tokens=job.output,
        )
        self._leases.end(job.id)
        self._touch(fate.pool)
        self._experience.learn([(run, self._promises.end(job.id))])

    def wake_s(self, now_s: float) -> float:
        ends_s = self._lesson.ends_s if self._lesson else math.inf
        return min(self._look_s(now_s), self._leases.departs_s(), ends_s)

    def _look_s(self, now_s: float) -> float:
        # without a free slot only the end of a run changes anything, or lower work's leaving
        patience = any(self._held_of[one] for one in self._room.terms.patience_s)
        if not self._held or not (self._open or patience):
            return math.inf
        next_s = self._next_look_s if self._missed else self._looked_s + SNAPSHOTS_S
        return max(next_s, now_s)

    def starts(self, now_s: float) -> Iterator[Action]:
        self._now_s = max(self._now_s, now_s)
        yield from self._departures()
        self._missed = now_s < self._next_look_s
        if self._missed:
            return
        self._looked_s = now_s
        self._next_look_s = now_s + LOOK_S_A_POOL * len(self._pools)
        more = True
        while more and self._held:
            leased = 0
            deep = self._spurned and self._deep.due()
            held = self._heads(HEADS_A_CLASS if deep else HEADS)
            placements = self._decide(held, deep=deep)
            self._waits.note(placements.looked, self._now_ms())
            for placement in self._room.granted(placements, self._now_ms()):
                leased += 1
                yield self._lease(placement)
                assert placement.pool is not None
                self._touch(self._index[placement.pool.pool])
            self._spurned = len(held) >= HEADS and any(one.spurns for one in placements.looked)
            self._room.make(ROLE, placements, self._now_ms())
            more = leased > 0 and len(held) >= FEWEST_HEADS and bool(self._open)

    def _departures(self) -> Iterator[Action]:
        """Of those that made room, and of the training whose slice is over."""
        lesson, now_s = self._lesson, self._now_s
        if lesson is not None and lesson.pool is not None and lesson.ends_s <= now_s:
            pool = lesson.pool
            yield Rest(pool=pool, paused=False)
            self._leases.end(lesson.job.id)
            self._back(lesson.end(now_s), pool)
        for job, pool in self._leases.departed():
            if lesson is not None and job.id == lesson.job.id:
                yield Rest(pool=pool, paused=True)
                self._back(lesson.end(now_s), pool)
            else:
                made = self._pools[pool].made(int(job.id), now_s)
                yield Evict(pool=pool, number=int(job.id))
                self._back(_rest_of(self._requests[job.id], made, self._now_ms()), pool)

    def _hold(self, job: HeldJob) -> None:
        self._held[job.id] = job
        self._held_of[job.job_class] += job.kind != "train"
        self._sets.add(_held_set(job), job.order, job.id)

    def _back(self, job: HeldJob, pool: int) -> None:
        """It is held again."""
        self._promises.end(job.id)
        self._touch(pool)
        self._hold(job)

    def _touch(self, index: int) -> None:
        """What is leased in a pool has changed."""
        pool = self._pools[index]
        load = PoolLoad(in_flight=pool.in_flight, kv_tokens=pool.kv_tokens)
        self._loads[pool.described.pool] = load
        if pool.free > 0:
            self._open.add(index)
        else:
            self._open.discard(index)

    def _heads(self, per_set: int) -> list[HeldJob]:
        self._turn += 1
        ids = self._sets.heads(per_set, HEADS_A_CLASS, self._turn)
        return [self._held[job_id] for job_id in ids]

    def _decide(self, held: list[HeldJob], *, deep: bool) -> Decided:
        promises = self._promises.settle(self._loads)
        if self._learn.due():
            self._experience.publish(promises, self._now_ms())
        cluster = Cluster(
            pools=self._snapshots(),
            loads=self._loads,
            models=self._models,
            promises=promises,
            warm=self._warm.where,
            urgent_per_s=self._arrivals.per_s(self._now_ms()),
            serving=self._promises.serving,
            lifted=self._promises.lifted,
            drag=self._experience.drag,
            lengths=self._experience.lengths,
            waits=self._waits.factors,
        )
        return decide(held, cluster, self._now_ms(), self._roster, deep=deep)

    def _lease(self, placement: Placement) -> Start | Teach:
        job, pool, forecast = placement.job, placement.pool, placement.forecast
        assert pool is not None
        assert forecast is not None
        index = self._index[pool.pool]
        self._promises.make(placement, self._now_ms())
        self._warm.note(job, pool.pool, room_bytes(placement))
        self._sets.remove(_held_set(job), job.order, job.id)
        self._leases.add(job, index)
        del self._held[job.id]
        self._held_of[job.job_class] -= job.kind != "train"
        if job.kind == "train":
            assert self._lesson is not None
            self._lesson.begin(index, self._now_s)
            return Teach(pool=index, rank=RANKS[job.job_class])
        predicted_s = self._now_s + forecast[0]
        return Start(request=self._requests[job.id], pool=index, predicted_s=predicted_s)

    def _snapshots(self) -> tuple[PoolSnapshot, ...]:
        if self._cold or not self._published:
            cold = frozenset(i for i in self._cold if not self._pools[i].loaded(self._now_s))
            if cold != self._cold or not self._published:
                weight_bytes = self._described.weight_bytes
                self._published = tuple(
                    pool.described.snapshot(weight_bytes, loaded=index not in cold)
                    for index, pool in enumerate(self._pools)
                )
                self._cold = cold
        return self._published

    def _now_ms(self) -> int:
        return clock_ms(self._now_s)


def _rest_of(request: Request, made: int, now_ms: int) -> HeldJob:
    """What is left of a job that was evicted: what it made is read again."""
    job = request.held()
    return replace(
        job,
        prompt_bytes=job.prompt_bytes + int(made * BYTES_PER_TOKEN),
        max_tokens=job.max_tokens - made,
        held_since_ms=now_ms,
    )


def _held_set(job: HeldJob) -> str:
    """As noidle.acceptance names it, from what is left of the job here; of an evicted one it would
    be that of the whole job."""
    size = (job.prompt_bytes // 3 + job.max_tokens).bit_length()
    shelf = zlib.crc32((job.label or "").encode()) % LABEL_SHELVES
    return f"{job.job_class.value}:{job.kind}|{job.model}|*|*|{size}|{shelf}"
