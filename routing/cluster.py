"""What the policy looks at: one frozen picture of pools, promises and models.

Owns the records that go into a decision besides the jobs; knows nothing of how they are read."""

from collections.abc import Mapping, Set
from dataclasses import dataclass, field
from typing import NamedTuple

from noidle.jobs import EngineName, JobClass
from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.board import PoolLoad

LengthKey = tuple[str, str, str | None, int]
"""Kind, model, label, and the size of what was asked for as a power of two."""


def length_key(kind: str, model: str, label: str | None, max_tokens: int) -> LengthKey:
    """Jobs that are likely to have answers alike in length."""
    return kind, model, label, max_tokens.bit_length()


class Drag(NamedTuple):
    """How much longer than by its rates alone a pool takes, as was observed: other runs read their
    prompts, the host is busy, or the rates are wrong."""

    # how many times longer a prompt takes, and a decode step
    read: float
    decode: float


PUNCTUAL = (1.0,) * len(JobClass)
"""Every class waits as long as predicted."""
AS_TOLD = Drag(1.0, 1.0)
"""A pool that keeps what its rates promise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """A lease as its router predicted it; all times are Redis's clock."""

    job: str
    pool: str
    kind: str
    model: str
    label: str | None = None
    job_class: JobClass = JobClass.STANDARD
    # it went before all because it starved
    lifted: bool = False
    leased_ms: int
    # when the model should be in memory, and when the slot should be free again
    ready_ms: int
    ends_ms: int
    # when its prompt should have been read; absent: it has none
    read_ms: int | None = None
    # tokens it should make
    tokens: int = 0
    # by the pool's rates alone: a decode step, one beside which a part of a prompt is read, and
    # reading the whole prompt
    step_s: float = 0.0
    full_step_s: float = 0.0
    # likewise a decode step with every slot taken
    crowded_step_s: float = 0.0
    prompt_s: float = 0.0
    # by the rates, prompts that this router sent there: with its own, and after it
    sent_s: float = 0.0
    later_s: float = 0.0
    # how much slower than its rates the pool was taken to be
    drag: Drag = AS_TOLD


@dataclass(frozen=True, slots=True, kw_only=True)
class Cluster:
    """Everything but the jobs. A pool without an entry in `loads` has nothing leased; leases
    beyond `promises` are counted, with typical ends."""

    pools: tuple[PoolSnapshot, ...]
    loads: Mapping[str, PoolLoad] = field(default_factory=dict)
    models: Mapping[str, ModelInfo] = field(default_factory=dict)
    promises: Mapping[str, tuple[Promise, ...]] = field(default_factory=dict)
    # by pool: how much longer runs take there than its rates say, where that was seen
    drag: Mapping[str, Drag] = field(default_factory=dict)
    # interactive jobs that came lately
    urgent_per_s: float = 0.0
    # how many jobs of a class and label have a lease, and how many that starved
    serving: Mapping[tuple[JobClass, str | None], int] = field(default_factory=dict)
    lifted: int = 0
    # by the hash of a prompt's beginning: the pools that likely hold its KV cache
    warm: Mapping[str, Set[str]] = field(default_factory=dict)
    # the share of the tokens asked for that answers had, where enough were seen
    lengths: Mapping[LengthKey, float] = field(default_factory=dict)
    # by rank of class: how many times longer jobs wait than the next slot takes, being overtaken
    waits: tuple[float, ...] = PUNCTUAL
    # engines that lately had a second pool, even if it is not seen now: it may still consume
    # the engine's queue, so messages go to the chosen pool's own
    shared: frozenset[EngineName] = frozenset()
