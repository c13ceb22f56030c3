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
from routing.cluster import AS_TOLD, Cluster, Drag, Promise
from routing.ends import SOON_S, left_of, left_s, row_of, standing, typical_s
from routing.facts import Column, LaneFacts, Marks, SceneFacts
from routing.novelty import takes_leases

SceneKey = tuple[str, str, EngineName | None, str | None]

SPARE_FROM_SLOTS = 4
"""A pool of this many slots keeps one free of background work, so that urgent work starts at
once; in a smaller one that would cost background a third of its throughput or more."""
KEPT = 256
"""Models and requirements remembered at most."""
_IDLE = PoolLoad()


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
        self._drag: Mapping[str, Drag] = {}
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
        if cluster.drag is not self._drag:
            self._drag = cluster.drag
            found = [cluster.drag.get(name, AS_TOLD) for name in self.names]
            self.read_drag[:] = [one.read for one in found]
            self.decode_drag[:] = [one.decode for one in found]

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
            scene = self._scenes[key] = SceneFacts(job, model, self.pools)
        return scene

    def next_s(self, now_ms: int) -> Column:
        """Seconds until the next busy slot of each pool should be free."""
        first_ms, first_leased_ms, second_ms, second_leased_ms, unknown = self._ends[:5]
        first_s = left_s(first_ms, first_leased_ms, now_ms)
        found = np.minimum(first_s, left_s(second_ms, second_leased_ms, now_ms))
        np.minimum(found, unknown, out=found)
        found[found == math.inf] = SOON_S
        return found

    def training_s(self, now_ms: int) -> Column:
        """Seconds until the trainings of each pool should have ended; 0: there are none."""
        end_ms, leased_ms = self._ends[5:7]
        return np.where(end_ms == math.inf, 0.0, left_s(end_ms, leased_ms, now_ms))

    def backlog_s(self, now_ms: int) -> Column:
        """Seconds until the prompts that were sent to each pool should have been read."""
        return np.maximum(self.read_ms - now_ms, 0.0) / 1000

    def ends_s(self, i: int, now_ms: int) -> list[float]:
        """When each busy slot of one pool should be free."""
        load = self.loads[i]
        ends = [left_of(promise, now_ms) for promise in self._known[i]]
        unknown = load.in_flight - len(ends)
        if unknown > 0:
            whole_s = typical_s(self.pools[i], load.in_flight)
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
        self.index = {name: i for i, name in enumerate(self.names)}
        self.gists = [None] * count
        self.loads, self.promises = [_IDLE] * count, [()] * count
        # the promises that still stand, the first to end first
        self._known: list[list[Promise]] = [[] for _ in pools]
        self._lanes.clear()
        self._scenes.clear()
        self._table = np.zeros((8, count))
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
            # Redis time by which the prompts that were sent there should have been read
            self.read_ms,
        ) = self._table
        # how many times longer than by its rates reading and decoding take
        self.read_drag, self.decode_drag = np.ones((2, count))
        self._drag = {}
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
        known = self._known[i] = standing(self.promises[i], load)
        self.in_flight[i] = load.in_flight
        self.kv_leased[i] = load.kv_tokens
        self.memory_leased[i] = load.memory_bytes
        self.alone[i] = load.alone
        self.read_ms[i] = max((one.read_ms for one in known if one.read_ms), default=0)
        self._ends[:, i] = row_of(pool, load, known)
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
        pool.working_bytes,
    )


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
