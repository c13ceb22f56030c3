"""What the policy decided about one job, with all that is needed to say why. Owns the records;
the words are made from them only for decisions that somebody may read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.board import HeldJob
from routing.gate import Refused
from routing.outlook import Lane


class Action(StrEnum):
    """What becomes of a job at this look."""

    LEASE = "lease"  # it starts now
    WAIT = "wait"  # a pool could run it, later
    UNPLACEABLE = "unplaceable"  # no present pool will ever run it


class Cause(StrEnum):
    """Why a job could or could not start in a pool at once."""

    FREE = "free"  # it could
    FULL = "full"  # all slots are leased, or promised to jobs before it
    SPARE = "spare"  # the last free slot is kept from background work
    KV = "kv"  # too little KV cache is free
    MEMORY = "memory"  # too little memory for weights or KV cache
    FENCED = "fenced"  # would delay a job before it that needs more room
    TRAINING = "training"  # another training runs there
    ALONE = "alone"  # it must run alone, or another one does


Forecast = tuple[float, float, Cause, int]
"""One job in one lane: seconds to its end, seconds to its start, what keeps it, and the batch
it would join. A plain tuple, since a look makes one for each job and pool."""


class Need(NamedTuple):
    """What a job takes of a pool. A tuple, as Placement, since each look makes one a job."""

    # estimated tokens of the prompt
    prompt: int
    kv_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What all jobs of one kind, model, wish and storage share in one look."""

    model: ModelInfo
    lanes: Sequence[Lane]
    # by pool
    refused: Mapping[str, Refused]
    # the smallest whole KV cache among the lanes
    kv_least: float
    # tokens of prompt and answer together
    context: float
    # the fastest training among the lanes
    train_tokens_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a job that may start now is to be leased."""

    queue: str
    memory_bytes: int
    # up to which sum of all leases in the pool
    memory_limit: int | None
    # likewise; absent where the pool's bound is not for this model
    kv_tokens_total: int | None
    # seconds until the model is in memory
    ready_s: float


class Placement(NamedTuple):
    """The decision. Without a scene: not looked at, since nothing is free and enough wait."""

    job: HeldJob
    action: Action
    scene: Scene | None = None
    need: Need | None = None
    # the pools that could run it, and a forecast for each
    lanes: Sequence[Lane] = ()
    forecasts: Sequence[Forecast] = ()
    # the lane of choice, for a lease or to wait for
    best: int | None = None
    # the pools that could not
    refused: Mapping[str, Refused] = MappingProxyType({})
    # there for a lease
    grant: Grant | None = None

    @property
    def pool(self) -> PoolSnapshot | None:
        return None if self.best is None else self.lanes[self.best].look.pool

    @property
    def forecast(self) -> Forecast | None:
        return None if self.best is None else self.forecasts[self.best]
