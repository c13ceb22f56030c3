"""What is free in one pool, now and as predicted, while a look at all jobs goes on.

Owns the mutable side of a decision: each job placed or waiting takes its slot out of what the
next one sees. Knows nothing of which pool is best."""

import heapq
import math
from collections.abc import Iterable, Mapping

from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.board import HeldJob, PoolLoad
from routing.cluster import Promise
from routing.gate import Room, weights_of
from routing.prediction import Speed, speed_of

SPARE_FROM_SLOTS = 4
"""A pool of this many slots keeps one free of background work, so that urgent work starts at
once; in a smaller one that would cost background a third of its throughput or more."""
TYPICAL_TOKENS = 128
"""Length assumed of a lease that another router made."""
OVERDUE_SHARE = 0.25
"""A run past its predicted end is expected to take this share more of what it took so far."""
SOON_S = 0.02
"""No run is expected to end sooner than this."""


class Outlook:
    """One pool. Seconds count from the moment of the decision."""

    __slots__ = (
        "alone",
        "busy",
        "ends",
        "fence_s",
        "free",
        "kv_free",
        "kv_limit",
        "kv_open",
        "memory_limit",
        "memory_open",
        "next_s",
        "pool",
        "room",
        "slots",
        "spare",
        "training_s",
    )

    def __init__(
        self,
        pool: PoolSnapshot,
        load: PoolLoad,
        promises: Iterable[Promise],
        models: Mapping[str, ModelInfo],
        now_ms: int,
    ) -> None:
        self.pool = pool
        self.slots = max(pool.slots, 1)
        self.busy = load.in_flight
        # a lease that must run alone takes the whole pool
        self.alone = load.alone
        self.free = 0 if load.alone else max(self.slots - load.in_flight, 0)
        self.spare = 1 if self.slots >= SPARE_FROM_SLOTS else 0
        known = sorted(promises, key=_ends_ms, reverse=True)[: load.in_flight]
        self.ends = _ends(pool, known, load.in_flight, now_ms)
        self.next_s = self.ends[0] if self.ends else SOON_S
        self.training_s = max(
            (_left_s(one, now_ms) for one in known if one.kind == "train"), default=0.0
        )
        self._measure_room(load, known, models, now_ms)
        # before this time nothing may start that would not have ended by then
        self.fence_s = math.inf

    def _measure_room(
        self,
        load: PoolLoad,
        known: list[Promise],
        models: Mapping[str, ModelInfo],
        now_ms: int,
    ) -> None:
        pool = self.pool
        total = pool.kv_tokens_total
        self.kv_limit = math.inf if total is None else total
        # not leased, and of that what no waiting job has reserved
        self.kv_free = self.kv_limit - load.kv_tokens
        self.kv_open = self.kv_free
        self.memory_limit = _memory_limit(pool, load, known, models)
        self.memory_open = (
            math.inf if self.memory_limit is None else self.memory_limit - load.memory_bytes
        )
        self.room = Room(
            now_ms=now_ms,
            memory_bytes=None if self.memory_limit is None else int(self.memory_open),
            idle=load.in_flight == 0,
        )

    def start(self, finish_s: float, kv: int, memory_bytes: int, *, alone: bool) -> None:
        """A job starts now and takes a free slot."""
        self.free = 0 if alone else self.free - 1
        self.alone = self.alone or alone
        self.busy += 1
        heapq.heappush(self.ends, finish_s)
        self.next_s = self.ends[0]
        self.kv_free -= kv
        self.kv_open -= kv
        self.memory_open -= memory_bytes

    def queue(self, finish_s: float) -> None:
        """A job waits for the next slot: those after it see the slot after that."""
        if self.ends:
            heapq.heapreplace(self.ends, finish_s)
            self.next_s = self.ends[0]

    def reserve(self, start_s: float, kv: int | None) -> None:
        """A job waits for more than a slot: `kv` tokens, or the whole pool (None). What is free
        now may only be used by work that leaves it that, or ends before it starts."""
        self.fence_s = min(self.fence_s, start_s)
        self.kv_open = -1.0 if kv is None else self.kv_open - kv

    def all_free_s(self) -> float:
        """When the last run should end."""
        return max(self.ends, default=0.0)


class Lane:
    """One model in one pool: its speed, and when it is in memory."""

    __slots__ = (
        "kv_bytes",
        "kv_counts",
        "kv_limit",
        "load_bytes",
        "load_s",
        "look",
        "prefill_s",
        "ready_s",
        "sequence_s",
        "step_s",
        "train_tokens_per_s",
    )

    def __init__(
        self, look: Outlook, job: HeldJob, model: ModelInfo, promises: Iterable[Promise]
    ) -> None:
        pool = look.pool
        speed: Speed = speed_of(pool, model)
        self.look = look
        self.prefill_s = speed.prefill_s
        self.step_s = speed.step_s
        self.sequence_s = speed.step_s_per_sequence
        self.train_tokens_per_s = speed.train_tokens_per_s
        # tokens of other models tell nothing of how many this one would get
        fits = model.name in pool.loaded or not pool.loaded
        self.kv_limit = look.kv_limit if fits else math.inf
        # 1 where the pool's bound holds for this model
        self.kv_counts = 1 if self.kv_limit < math.inf else 0
        bounded = self.kv_counts or job.kind == "train"
        # where a pool bounds KV by tokens, it has allocated that memory already
        self.kv_bytes = 0 if bounded else model.kv_bytes_per_token or 0
        self.load_bytes = weights_of(job, pool, model)
        # seconds a job adds for bringing the model into memory, and when that is under way
        self.load_s = 0.0 if model.name in pool.loaded else speed.load_s
        self.ready_s = 0.0
        loading = [one.ready_ms for one in promises if one.model == model.name]
        if loading and self.load_s:
            self.will_load((min(loading) - look.room.now_ms) / 1000)

    def will_load(self, ready_s: float) -> None:
        """The first job on a model that is not loaded pays for all that come after it."""
        if self.load_s:
            self.load_s, self.ready_s, self.load_bytes = 0.0, max(ready_s, 0.0), 0


def _ends_ms(promise: Promise) -> int:
    return promise.ends_ms


def _left_s(promise: Promise, now_ms: int) -> float:
    left_s = (promise.ends_ms - now_ms) / 1000
    if left_s <= 0:
        left_s = OVERDUE_SHARE * (now_ms - promise.leased_ms) / 1000
    return max(left_s, SOON_S)


def _ends(pool: PoolSnapshot, known: list[Promise], busy: int, now_ms: int) -> list[float]:
    """A heap of when each busy slot should be free."""
    ends = [_left_s(promise, now_ms) for promise in known]
    unknown = busy - len(ends)
    if unknown > 0:
        speed = speed_of(pool, ModelInfo(name=""))
        whole_s = TYPICAL_TOKENS * (speed.step_s + speed.step_s_per_sequence * busy)
        # they began one after the other, so they end so
        ends += [max(whole_s * (i + 1) / unknown, SOON_S) for i in range(unknown)]
    heapq.heapify(ends)
    return ends


def _memory_limit(
    pool: PoolSnapshot, load: PoolLoad, known: list[Promise], models: Mapping[str, ModelInfo]
) -> int | None:
    """What leases may reserve: free memory, and the weights of models that idle, of which the
    engine lets the least recently used go. Which ones idle is known only while all leases are."""
    if pool.memory_free_bytes is None:
        return None
    if len(known) < load.in_flight:
        return pool.memory_free_bytes
    used = {one.model for one in known}
    idle = [models[name] for name in pool.loaded if name not in used and name in models]
    return pool.memory_free_bytes + sum(model.weight_bytes or 0 for model in idle)
