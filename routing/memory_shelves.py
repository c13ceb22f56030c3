"""What the memory board keeps beside its records: held sets in order, promises in pools, models.
Owns their bookkeeping; knows nothing of why a job moves."""

import bisect
from collections.abc import Iterable
from dataclasses import dataclass

from noidle.jobs import JobClass
from noidle.snapshot import ModelInfo
from routing.board import Lease, PoolLoad
from routing.bounds import MEMORY_UNSEEN_MS


class HeldSets:
    """Ids that wait, by set, each set in its order."""

    def __init__(self) -> None:
        self._sets: dict[str, list[tuple[float, str]]] = {}

    def __len__(self) -> int:
        return sum(map(len, self._sets.values()))

    def add(self, name: str, order: float, job_id: str) -> None:
        bisect.insort(self._sets.setdefault(name, []), (order, job_id))

    def remove(self, name: str, order: float, job_id: str) -> None:
        entries = self._sets[name]
        del entries[bisect.bisect_left(entries, (order, job_id))]
        if not entries:
            del self._sets[name]

    def heads(self, per_set: int, per_class: int, turn: int) -> Iterable[str]:
        """Class by class, the same number of heads of each set; which sets are shown where a
        class has more sets than heads changes with `turn`."""
        for job_class in JobClass:
            names = sorted(name for name in self._sets if name.startswith(f"{job_class.value}:"))
            if not names:
                continue
            shown = min(len(names), per_class)
            count = min(per_set, max(1, per_class // len(names)))
            first = turn * shown % len(names) if shown < len(names) else 0
            for offset in range(shown):
                entries = self._sets[names[(first + offset) % len(names)]]
                yield from (job_id for _, job_id in entries[:count])


@dataclass(slots=True, kw_only=True)
class Promise:
    """What one lease reserves in its pool."""

    kv_tokens: int
    memory_bytes: int
    alone: bool
    # absent until the pool claimed it
    claimed: float | None = None
    # which claim of all it was
    number: int = 0


class Promises:
    """The leases of every pool."""

    def __init__(self) -> None:
        self._pools: dict[str, dict[str, Promise]] = {}
        # the last claim of each pool beside another lease; a clock may stand still between two
        self._shared: dict[str, int] = {}
        self._claims = 0

    def jobs(self, pool: str) -> list[str]:
        return list(self._pools.get(pool, ()))

    def of(self, pool: str, job_id: str) -> Promise:
        return self._pools[pool][job_id]

    def add(self, lease: Lease, *, alone: bool) -> None:
        promise = Promise(kv_tokens=lease.kv_tokens, memory_bytes=lease.memory_bytes, alone=alone)
        self._pools.setdefault(lease.pool, {})[lease.job] = promise

    def claim(self, pool: str, job_id: str, now: float) -> None:
        promises = self._pools[pool]
        self._claims += 1
        promises[job_id].claimed = now
        promises[job_id].number = self._claims
        if len(promises) > 1:
            self._shared[pool] = self._claims

    def remove(self, pool: str, job_id: str) -> None:
        promises = self._pools.get(pool, {})
        promises.pop(job_id, None)
        if not promises:
            self._pools.pop(pool, None)

    def shared(self, pool: str, job_id: str) -> bool:
        """Whether a run had company in its pool at any time."""
        return self._shared.get(pool, 0) >= self._pools[pool][job_id].number

    def loads(self, now: float) -> dict[str, PoolLoad]:
        return {pool: self.load(pool, now) for pool in self._pools}

    def load(self, pool: str, now: float) -> PoolLoad:
        promises = self._pools.get(pool, {}).values()
        unseen = [
            promise.memory_bytes
            for promise in promises
            if promise.claimed is None or now - promise.claimed < MEMORY_UNSEEN_MS
        ]
        return PoolLoad(
            in_flight=len(promises),
            kv_tokens=sum(promise.kv_tokens for promise in promises),
            memory_bytes=sum(unseen),
            alone=any(promise.alone for promise in promises),
        )


def fits(lease: Lease, load: PoolLoad, *, alone: bool, beside_bytes: int = 0) -> bool:
    """Whether the pool has room for the lease after what is promised already; `beside_bytes`: in
    the other pools on its device."""
    if load.alone or load.in_flight + 1 > lease.slots or (alone and load.in_flight):
        return False
    kv = load.kv_tokens + lease.kv_tokens
    memory = load.memory_bytes + beside_bytes + lease.memory_bytes
    if lease.kv_tokens_total is not None and kv > lease.kv_tokens_total:
        return False
    return lease.memory_free_bytes is None or memory <= lease.memory_free_bytes


class Models:
    """Known models, and those that a training job is to create."""

    def __init__(self) -> None:
        self.known: dict[str, ModelInfo] = {}
        # model to the job that is to create it
        self.planned: dict[str, str] = {}

    def plan(self, model: ModelInfo, job_id: str) -> None:
        if model.name not in self.known:
            self.known[model.name] = model
            self.planned[model.name] = job_id

    def set(self, model: ModelInfo) -> bool:
        """Whether this says anything new."""
        self.planned.pop(model.name, None)
        before = self.known.get(model.name)
        self.known[model.name] = model
        return before != model

    def forget(self, name: str, storage: str) -> bool:
        """Whether it was known to lie on that storage."""
        known = self.known.get(name)
        if known is None or known.storage != storage or name in self.planned:
            return False
        del self.known[name]
        return True

    def forget_planned(self, name: str, job_id: str) -> None:
        if self.planned.get(name) == job_id:
            del self.planned[name], self.known[name]

    @property
    def named_by_pools(self) -> bool:
        """Whether any model is more than a plan."""
        return len(self.known) > len(self.planned)
