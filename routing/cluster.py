"""What the policy looks at: one frozen picture of pools, promises and models.

Owns the records that go into a decision besides the jobs; knows nothing of how they are read."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.board import PoolLoad


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A lease as its router predicted it; all times are Redis's clock."""

    job: str
    pool: str
    kind: str
    model: str
    leased_ms: int
    # when the model should be in memory, and when the slot should be free again
    ready_ms: int
    ends_ms: int
    # when its prompt should have been read; absent: it has none
    read_ms: int | None = None
    # how much slower than its rates the pool was taken to be
    drag: float = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything but the jobs. A pool without an entry in `loads` has nothing leased; leases
    beyond `promises` are counted, with typical ends."""

    pools: tuple[PoolSnapshot, ...]
    loads: Mapping[str, PoolLoad] = field(default_factory=dict)
    models: Mapping[str, ModelInfo] = field(default_factory=dict)
    promises: Mapping[str, tuple[Promise, ...]] = field(default_factory=dict)
    # by pool: how many times longer runs take there than its rates say, where that was seen
    drag: Mapping[str, float] = field(default_factory=dict)
    # engines that lately had a second pool, even if it is not seen now: it may still consume
    # the engine's queue, so messages go to the chosen pool's own
    shared: frozenset[EngineName] = frozenset()
