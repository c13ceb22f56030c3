"""The pools of a cluster as columns, one row a pool: what the policy compares by the thousand.

Owns what can be kept from one look to the next. It is a cache and nothing else: what it answers
follows from the cluster it was shown last. Knows nothing of how a job is placed."""

import math
from collections import Counter
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster, Promise
from routing.gate import standing_refusal, weights_of
from routing.novelty import takes_leases
from routing.prediction import speed_of

Column = NDArray[np.float64]
Marks = NDArray[np.bool_]
SceneKey = tuple[str, str, EngineName | None, str | None]

SPARE_FROM_SLOTS = 4
"""A pool of this many slots keeps one free of background work, so that urgent work starts at
once; in a smaller one that would cost background a third of its throughput or more."""
TYPICAL_TOKENS = 128
"""Length assumed of a lease that another router made."""
OVERDUE_SHARE = 0.25
"""A run past its predicted end is expected to take this share more of what it took so far."""
SOON_S = 0.02
"""No run is expected to end sooner than this."""
KEPT = 256
"""Models and requirements remembered at most."""
_IDLE = PoolLoad()


class LaneFacts:
    """One model in every pool: how fast, and what it takes of memory."""

    COLUMNS = (
        "prefill_s",
        "step_s",
        "sequence_s",
        "load_s",
        "load_bytes",
        "kv_bytes",
        "kv_limit",
        "train_tokens_per_s",
    )

    def __init__(self, job: HeldJob, model: ModelInfo, pools: tuple[PoolSnapshot, ...]) -> None:
        self._job = job
        self._model = model
        self._table = np.zeros((len(self.COLUMNS), len(pools)))
        (
            self.prefill_s,
            self.step_s,
            self.sequence_s,
            self.load_s,
            self.load_bytes,
            self.kv_bytes,
            # tokens of KV cache in all; infinite where the pool does not bound this model's
            self.kv_limit,
            self.train_tokens_per_s,
        ) = self._table
        for i, pool in enumerate(pools):
            self.set(i, pool)

    def set(self, i: int, pool: PoolSnapshot) -> None:
        model, speed = self._model, speed_of(pool, self._model)
        # tokens of other models tell nothing of how many this one would get
        bounded = model.name in pool.loaded or not pool.loaded
        total = pool.kv_tokens_total if bounded else None
        # where a pool bounds KV by tokens, it has allocated that memory already
        free = total is not None or self._job.kind == "train"
        self._table[:, i] = (
            speed.prefill_s,
            speed.step_s,
            speed.step_s_per_sequence,
            0.0 if model.name in pool.loaded else speed.load_s,
            weights_of(self._job, pool, model),
            0 if free else model.kv_bytes_per_token or 0,
            math.inf if total is None else total,
            speed.train_tokens_per_s,
        )


class SceneFacts:
    """Which pools could run jobs that are alike in kind, model, wish and storage, so far as that
    does not change with time or load."""

    def __init__(self, job: HeldJob, model: ModelInfo, roster: "Roster") -> None:
        self.model = model
        self._job = job
        count = len(roster.pools)
        self.refused: Marks = np.zeros(count, bool)
        self.lasting: Marks = np.zeros(count, bool)
        # pools that are alike to the gate are asked about once
        self._known: dict[Any, tuple[bool, bool]] = {}
        for i, pool in enumerate(roster.pools):
            self.set(i, pool)

    def set(self, i: int, pool: PoolSnapshot) -> None:
        gist = _to_gate(pool)
        found = self._known.get(gist)
        if found is None:
            no = standing_refusal(self._job, pool, self.model)
            found = self._known[gist] = no is not None, no is not None and no.lasting
        self.refused[i], self.lasting[i] = found


class Roster:
    """Shown a cluster, it brings its rows up to date."""

    def __init__(self) -> None:
        self.pools: tuple[PoolSnapshot, ...] = ()
        self.names: list[str] = []
        self.gists: list[Any] = []
        self.models: Mapping[str, ModelInfo] = {}
        self.loads: list[PoolLoad] = []
        self.promises: list[tuple[Promise, ...]] = []
        self._lanes: dict[tuple[str, bool], LaneFacts] = {}
        self._scenes: dict[SceneKey, SceneFacts] = {}
        self._seat((), {})

    def show(self, cluster: Cluster) -> None:
        """Afterwards all columns stand for this cluster."""
        if cluster.models is not self.models and cluster.models != self.models:
            self._seat(cluster.pools, cluster.models)
        elif cluster.pools is not self.pools:
            if [pool.pool for pool in cluster.pools] == self.names:
                self._renew(cluster.pools)
            else:
                self._seat(cluster.pools, cluster.models)
        self._recount(cluster.loads, cluster.promises)

    def lane(self, job: HeldJob, model: ModelInfo) -> LaneFacts:
        key = (model.name, job.kind == "train")
        lane = self._lanes.get(key)
        if lane is None:
            if len(self._lanes) >= KEPT:
                self._lanes.clear()
            lane = self._lanes[key] = LaneFacts(job, model, self.pools)
        return lane

    def scene(self, job: HeldJob) -> SceneFacts:
        key = (job.kind, job.model, job.engine, job.storage)
        scene = self._scenes.get(key)
        if scene is None:
            if len(self._scenes) >= KEPT:
                self._scenes.clear()
            model = self.models.get(job.model) or ModelInfo(name=job.model)
            scene = self._scenes[key] = SceneFacts(job, model, self)
        return scene

    def next_s(self, now_ms: int) -> Column:
        """Seconds until the next busy slot of each pool should be free."""
        first_ms, first_leased_ms, second_ms, second_leased_ms, unknown = self._ends[:5]
        first_s = _left_s(first_ms, first_leased_ms, now_ms)
        found = np.minimum(first_s, _left_s(second_ms, second_leased_ms, now_ms))
        np.minimum(found, unknown, out=found)
        found[found == math.inf] = SOON_S
        return found

    def training_s(self, now_ms: int) -> Column:
        """Seconds until the trainings of each pool should have ended; 0: there are none."""
        end_ms, leased_ms = self._ends[5:7]
        return np.where(end_ms == math.inf, 0.0, _left_s(end_ms, leased_ms, now_ms))

    def ends_s(self, i: int, now_ms: int) -> list[float]:
        """When each busy slot of one pool should be free."""
        load = self.loads[i]
        ends = [_left_of(promise, now_ms) for promise in self._known[i]]
        unknown = load.in_flight - len(ends)
        if unknown > 0:
            whole_s = _typical_s(self.pools[i], load.in_flight)
            # they began one after the other, so they end so
            ends += [max(whole_s * (n + 1) / unknown, SOON_S) for n in range(unknown)]
        return ends

    def ready_ms(self, i: int, model: str) -> int | None:
        """When a model that is being loaded in a pool should be there."""
        return min((one.ready_ms for one in self.promises[i] if one.model == model), default=None)

    def _recount(
        self, loads: Mapping[str, PoolLoad], promises: Mapping[str, tuple[Promise, ...]]
    ) -> None:
        """The pools of whose leases something changed."""
        found = [loads.get(name, _IDLE) for name in self.names]
        made = [promises.get(name, ()) for name in self.names]
        old, older = self.loads, self.promises
        self.loads, self.promises = found, made
        for i, load in enumerate(found):
            if made[i] is not older[i] or (load is not old[i] and load != old[i]):
                self._count(i)

    def _seat(self, pools: tuple[PoolSnapshot, ...], models: Mapping[str, ModelInfo]) -> None:
        """All rows anew."""
        count = len(pools)
        self.pools, self.models = pools, models
        self.names = [pool.pool for pool in pools]
        self.gists = [None] * count
        self.loads, self.promises = [_IDLE] * count, [()] * count
        # the promises that still stand, the first to end first
        self._known: list[list[Promise]] = [[] for _ in pools]
        self._lanes.clear()
        self._scenes.clear()
        self._table = np.zeros((7, count))
        (
            self.slots,
            # Redis time of the snapshot; infinite where it does not tell
            self.heard_ms,
            self.kv_total,
            self.in_flight,
            self.kv_leased,
            self.memory_leased,
            # what leases may reserve, or infinite
            self.memory_limit,
        ) = self._table
        self.takes: Marks = np.zeros(count, bool)
        self.starting: Marks = np.zeros(count, bool)
        self.alone: Marks = np.zeros(count, bool)
        # of the first two leases end and beginning, then the first end of leases by others, then
        # end and beginning of the last training
        self._ends = np.full((7, count), math.inf)
        self.device, self.sharers = _devices(pools)
        engines = Counter(pool.engine for pool in pools)
        # engines of which there are several pools
        self.shared = frozenset(engine for engine, number in engines.items() if number > 1)
        for i, pool in enumerate(pools):
            self._set(i, pool)
            self._count(i)

    def _renew(self, pools: tuple[PoolSnapshot, ...]) -> None:
        """The same pools, some of which published anew."""
        before, self.pools = self.pools, pools
        if any(
            a.device != b.device or a.host != b.host for a, b in zip(before, pools, strict=True)
        ):
            self.device, self.sharers = _devices(pools)
        for i, pool in enumerate(pools):
            if pool is not before[i]:
                self._renew_one(i, pool)

    def _renew_one(self, i: int, pool: PoolSnapshot) -> None:
        # what a pool says of itself is mostly what it said a second ago
        gist = _gist(pool)
        if gist == self.gists[i]:
            self.heard_ms[i] = pool.published_ms or math.inf
            self._measure(i)
            return
        self._set(i, pool)
        for lane in self._lanes.values():
            lane.set(i, pool)
        for scene in self._scenes.values():
            scene.set(i, pool)
        self._count(i)

    def _set(self, i: int, pool: PoolSnapshot) -> None:
        self.gists[i] = _gist(pool)
        self.slots[i] = max(pool.slots, 1)
        self.heard_ms[i] = pool.published_ms or math.inf
        total = pool.kv_tokens_total
        self.kv_total[i] = math.inf if total is None else total
        self.takes[i] = takes_leases(pool)
        self.starting[i] = pool.state is PoolState.STARTING

    def _count(self, i: int) -> None:
        pool, load = self.pools[i], self.loads[i]
        known = self._known[i] = _known(self.promises[i], load)
        self.in_flight[i] = load.in_flight
        self.kv_leased[i] = load.kv_tokens
        self.memory_leased[i] = load.memory_bytes
        self.alone[i] = load.alone
        self._ends[:, i] = _ends(pool, load, known)
        self._measure(i)

    def _measure(self, i: int) -> None:
        limit = _memory_limit(self.pools[i], self.loads[i], self._known[i], self.models)
        self.memory_limit[i] = math.inf if limit is None else limit


def _devices(pools: tuple[PoolSnapshot, ...]) -> tuple[NDArray[np.intp], dict[int, list[int]]]:
    """The number of each pool's device, and the pools of those devices that several share."""
    numbers: dict[tuple[str, str], int] = {}
    members: dict[int, list[int]] = {}
    device = np.zeros(len(pools), np.intp)
    for i, pool in enumerate(pools):
        number = numbers.setdefault((pool.host, pool.device), len(numbers))
        device[i] = number
        members.setdefault(number, []).append(i)
    return device, {number: own for number, own in members.items() if len(own) > 1}


def _gist(pool: PoolSnapshot) -> tuple[Any, ...]:
    """All of a snapshot that columns are made of, but its time and its free memory."""
    return (
        pool.slots,
        pool.rates,
        pool.engine,
        pool.state,
        pool.pressure,
        pool.kinds,
        pool.models,
        pool.loaded,
        pool.storage,
        pool.stand_in,
        pool.kv_tokens_total,
    )


def _to_gate(pool: PoolSnapshot) -> tuple[Any, ...]:
    """All that a standing refusal depends on."""
    return (
        pool.engine,
        pool.state,
        pool.pressure,
        pool.kinds,
        pool.models,
        pool.storage,
    )


def _ends_ms(promise: Promise) -> int:
    return promise.ends_ms


def _known(made: tuple[Promise, ...], load: PoolLoad) -> list[Promise]:
    """The promises that still stand, the first to end first."""
    return sorted(made, key=_ends_ms)[max(len(made) - load.in_flight, 0) :]


def _ends(pool: PoolSnapshot, load: PoolLoad, known: list[Promise]) -> list[float]:
    row = [math.inf] * 7
    for place, promise in enumerate(known[:2]):
        row[2 * place : 2 * place + 2] = promise.ends_ms, promise.leased_ms
    unknown = load.in_flight - len(known)
    if unknown > 0:
        row[4] = max(_typical_s(pool, load.in_flight) / unknown, SOON_S)
    last = max((one for one in known if one.kind == "train"), key=_ends_ms, default=None)
    if last is not None:
        row[5:7] = last.ends_ms, last.leased_ms
    return row


def _typical_s(pool: PoolSnapshot, busy: int) -> float:
    speed = speed_of(pool, ModelInfo(name=""))
    return TYPICAL_TOKENS * (speed.step_s + speed.step_s_per_sequence * busy)


def _left_s(end_ms: Column, leased_ms: Column, now_ms: int) -> Column:
    left_ms = end_ms - now_ms
    with np.errstate(invalid="ignore"):
        left_ms = np.where(left_ms > 0, left_ms, OVERDUE_SHARE * (now_ms - leased_ms))
    return np.maximum(left_ms / 1000, SOON_S)


def _left_of(promise: Promise, now_ms: int) -> float:
    left_ms: float = promise.ends_ms - now_ms
    if left_ms <= 0:
        left_ms = OVERDUE_SHARE * (now_ms - promise.leased_ms)
    return max(left_ms / 1000, SOON_S)


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
