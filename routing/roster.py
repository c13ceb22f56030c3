"""The pools of a cluster as columns, one row a pool: what the policy compares by the thousand.

Owns what can be kept from one look to the next. It is a cache and nothing else: what it answers
follows from the cluster it was shown last. Knows nothing of how a job is placed."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import compress, count, repeat
from operator import attrgetter, is_not, ne
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState
from routing.board import HeldJob, PoolLoad
from routing.cluster import AS_TOLD, Cluster, Drag, Promise
from routing.ends import NO_ENDS, SOON_S, ends_of, left_of, left_s, standing, typical_s
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
            self._follow(cluster.models)
        if cluster.pools is not self.pools:
            new = list(compress(count(), map(is_not, cluster.pools, self.pools)))
            same = len(cluster.pools) == len(self.pools)
            if same and all(cluster.pools[i].pool == self.names[i] for i in new):
                self._renew(cluster.pools, new)
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
        lane.catch_up(self.pools)
        return lane

    def scene(self, job: HeldJob) -> SceneFacts:
        key = (job.kind, job.model, job.engine, job.storage)
        scene = self._scenes.get(key)
        if scene is None:
            if len(self._scenes) >= KEPT:
                self._scenes.clear()
            model = self.models.get(job.model) or ModelInfo(name=job.model)
            scene = self._scenes[key] = SceneFacts(job, model, self.pools)
        scene.catch_up(self.pools)
        return scene

    def next_s(self, now_ms: int) -> Column:
        """Seconds until the next busy slot of each pool should be free."""
        first_s, second_s = left_s(self._ends[0:2], self._ends[3:5], now_ms)
        next_s: Column = np.minimum(first_s, second_s)
        np.minimum(next_s, self._ends[6], out=next_s)
        np.putmask(next_s, next_s == math.inf, SOON_S)
        return next_s

    def training_s(self, now_ms: int) -> Column:
        """Seconds until the trainings of each pool should have ended; 0: there are none."""
        end_ms, leased_ms = self._ends[2], self._ends[5]
        if not len(end_ms) or end_ms.min() == math.inf:
            return np.zeros(len(end_ms))
        return np.where(end_ms == math.inf, 0.0, left_s(end_ms, leased_ms, now_ms))

    def backlog_s(self, now_ms: int) -> Column:
        """Seconds until the prompts that were sent to each pool should have been read."""
        backlog_s: Column = np.maximum(self.read_ms - now_ms, 0.0) / 1000
        return backlog_s

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

    def _recount(
        self, loads: Mapping[str, PoolLoad], promises: Mapping[str, tuple[Promise, ...]]
    ) -> None:
        """The pools of whose leases something changed."""
        # at the speed of C, since nearly all are the objects they were
        found = list(map(loads.get, self.names, repeat(_IDLE)))
        made: list[tuple[Promise, ...]] = list(map(promises.get, self.names, repeat(())))
        old, older = self.loads, self.promises
        self.loads, self.promises = found, made
        changed = set(compress(count(), map(is_not, made, older)))
        changed.update(compress(count(), map(ne, found, old)))
        self._count(sorted(changed))

    def _seat(self, pools: tuple[PoolSnapshot, ...], models: Mapping[str, ModelInfo]) -> None:
        """All rows anew."""
        size = len(pools)
        self.pools, self.models = pools, models
        self.names = [pool.pool for pool in pools]
        self.index = {name: i for i, name in enumerate(self.names)}
        self.gists = [None] * size
        self.loads, self.promises = [_IDLE] * size, [()] * size
        # the promises that still stand, the first to end first
        self._known: list[list[Promise]] = [[] for _ in pools]
        self._lanes.clear()
        self._scenes.clear()
        # Redis time of the snapshot is infinite where it does not tell
        self.slots, self.heard_ms, self.kv_total = np.zeros((3, size))
        # what changes with each lease
        self._counts = np.zeros((5 + len(NO_ENDS), size))
        (
            self.in_flight,
            self.kv_leased,
            self.memory_leased,
            # Redis time by which the prompts that were sent there should have been read
            self.read_ms,
            # bytes of weights that the engine would let go
            self._idle_bytes,
        ) = self._counts[:5]
        self._ends = self._counts[5:]
        # infinite where the pool does not tell
        self._memory_free = np.zeros(size)
        # what leases may reserve
        self.memory_limit = np.zeros(size)
        # of pools with leases on models that are not in memory yet: when they should be there
        self.loading: dict[int, dict[str, int]] = {}
        # how many times longer than by its rates reading and decoding take
        self.read_drag, self.decode_drag = np.ones((2, size))
        self._drag = {}
        self.takes: Marks = np.zeros(size, bool)
        self.starting: Marks = np.zeros(size, bool)
        self.alone: Marks = np.zeros(size, bool)
        self.device, self.sharers = _devices(pools)
        engines = Counter(pool.engine for pool in pools)
        # engines of which there are several pools
        self.shared = frozenset(engine for engine, number in engines.items() if number > 1)
        for i, pool in enumerate(pools):
            self._set(i, pool)
        self._hear(range(size))
        self._count(range(size))

    def _follow(self, models: Mapping[str, ModelInfo]) -> None:
        """A training writes a new revision every few seconds, which changes nothing else."""
        old, self.models = self.models, models
        new = [name for name in old.keys() | models.keys() if old.get(name) != models.get(name)]
        self._scenes = {key: facts for key, facts in self._scenes.items() if key[1] not in new}
        other = [name for name in new if not _alike(old.get(name), models.get(name))]
        if other:
            self._lanes = {key: facts for key, facts in self._lanes.items() if key[0] not in other}
            self._count(range(len(self.pools)))

    def _renew(self, pools: tuple[PoolSnapshot, ...], new: list[int]) -> None:
        """The same pools, some of which published anew."""
        before, self.pools = self.pools, pools
        for i in new:
            if pools[i].device != before[i].device or pools[i].host != before[i].host:
                self.device, self.sharers = _devices(pools)
                break
        # what a pool says of itself is mostly what it said a second ago
        changed = [i for i in new if _gist(pools[i]) != self.gists[i]]
        for i in changed:
            self._set(i, pools[i])
        self._hear(new)
        for lane in self._lanes.values():
            lane.behind.update(changed)
        for scene in self._scenes.values():
            scene.behind.update(changed)
        self._count(changed)

    def _set(self, i: int, pool: PoolSnapshot) -> None:
        self.gists[i] = _gist(pool)
        self.slots[i] = max(pool.slots, 1)
        total = pool.kv_tokens_total
        self.kv_total[i] = math.inf if total is None else total
        self.takes[i] = takes_leases(pool)
        self.starting[i] = pool.state is PoolState.STARTING

    def _hear(self, rows: Sequence[int]) -> None:
        """What a pool says anew each time."""
        told = [(self.pools[i].published_ms, self.pools[i].memory_free_bytes) for i in rows]
        self.heard_ms[rows] = [at or math.inf for at, _ in told]
        self._memory_free[rows] = [math.inf if free is None else free for _, free in told]
        self.memory_limit = self._memory_free + self._idle_bytes

    def _count(self, rows: Sequence[int]) -> None:
        if rows:
            self._counts[:, rows] = np.array([self._counted(i) for i in rows]).T
            self.alone[rows] = [self.loads[i].alone for i in rows]
            self.memory_limit = self._memory_free + self._idle_bytes

    def _counted(self, i: int) -> tuple[float, ...]:
        pool, load, made = self.pools[i], self.loads[i], self.promises[i]
        known = self._known[i] = standing(made, load)
        self._note_loading(i, pool, made)
        return (
            load.in_flight,
            load.kv_tokens,
            load.memory_bytes,
            max([one.read_ms for one in known if one.read_ms], default=0),
            _idle_bytes(pool, load, known, self.models),
            *ends_of(pool, load, known),
        )

    def _note_loading(self, i: int, pool: PoolSnapshot, made: tuple[Promise, ...]) -> None:
        loading: dict[str, int] = {}
        loaded = pool.loaded
        for one in made:
            if one.model not in loaded:
                loading[one.model] = min(one.ready_ms, loading.get(one.model, one.ready_ms))
        if loading:
            self.loading[i] = loading
        else:
            self.loading.pop(i, None)


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


_gist = attrgetter(
    "slots",
    "rates",
    "engine",
    "state",
    "pressure",
    "kinds",
    "models",
    "loaded",
    "storage",
    "stand_in",
    "kv_tokens_total",
    "working_bytes",
)
"""All of a snapshot that columns are made of, but its time and its free memory."""


def _alike(one: ModelInfo | None, other: ModelInfo | None) -> bool:
    """But for the revision."""
    if one is None or other is None:
        return False
    return one.model_copy(update={"revision": other.revision}) == other


def _idle_bytes(
    pool: PoolSnapshot, load: PoolLoad, known: list[Promise], models: Mapping[str, ModelInfo]
) -> int:
    """Weights of models that idle, of which the engine lets the least recently used go for others.
    Which ones idle is known only while all leases are."""
    if len(known) < load.in_flight:
        return 0
    used = {one.model for one in known}
    idle = [models[name] for name in pool.loaded if name not in used and name in models]
    return sum(model.weight_bytes or 0 for model in idle)
