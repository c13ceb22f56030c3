"""What the policy decided about one job, with all that is needed to say why. Owns the records;
the words are made from them only for decisions that somebody may read."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import NamedTuple

import numpy as np

from noidle.snapshot import PoolSnapshot
from routing.board import HeldJob
from routing.cluster import AS_TOLD, Drag
from routing.facts import Column
from routing.view import View


class Action(StrEnum):
    """What becomes of a job at this look."""

    LEASE = "lease"  # it starts now
    WAIT = "wait"  # a pool could run it, later
    UNPLACEABLE = "unplaceable"  # no present pool will ever run it
    REFUSED = "refused"  # it would end after its deadline wherever it ran


class Cause(StrEnum):
    """Why a job could or could not start in a pool at once."""

    FREE = "free"  # it could
    FULL = "full"  # all slots are leased, or promised to jobs before it
    SPARE = "spare"  # what is free is kept for more urgent work
    KV = "kv"  # too little KV cache is free
    MEMORY = "memory"  # too little memory for weights or KV cache
    FENCED = "fenced"  # would delay a job before it that needs more room
    TRAINING = "training"  # another training runs there
    ALONE = "alone"  # it must run alone, or another one does
    READING = "reading"  # prompts that were sent there before are still to be read


Forecast = tuple[float, float, Cause, int]
"""One job in one pool: seconds to its end, seconds to its start, what keeps it, and the batch
it would join."""


class Need(NamedTuple):
    """What a job takes of a pool. A tuple, as Placement, since each look makes one a job."""

    # estimated tokens of the prompt
    prompt: int
    kv_tokens: int
    # tokens that the answer will likely have
    tokens: int
    # by pool: tokens of the prompt that it need not read again
    warm: Mapping[int, int] = MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Grant:
    """What a job that may start now is to be leased."""

    queue: str
    memory_bytes: int
    # up to which sum of all leases in the pool, and in those that share its device
    memory_limit: int | None
    sharers: tuple[str, ...]
    # likewise; absent where the pool's bound is not for this model
    kv_tokens_total: int | None
    # seconds until the model is in memory, and until the prompt is read
    ready_s: float
    read_s: float
    # by the pool's rates alone: a decode step, one beside which a part of a prompt is read, and
    # reading the whole prompt
    step_s: float
    full_step_s: float
    # a decode step with every slot taken
    crowded_step_s: float
    prompt_s: float


class Placement(NamedTuple):
    """The decision. Without a view: not looked at, since nothing is free and enough wait; `peek`
    looks at it after all."""

    job: HeldJob
    action: Action
    view: View | None = None
    need: Need | None = None
    # changes of the look before this decision
    moment: int = 0
    # for each pool, seconds to the job's end: exact for the best, a lower bound for the others
    rows: Column | None = None
    # the pool of choice, for a lease or to wait for
    best: int | None = None
    forecast: Forecast | None = None
    # a job that waits, although pools that could run it have free slots
    spurns: bool = False
    # there for a lease
    grant: Grant | None = None
    # it went before all because it starved
    lifted: bool = False
    # absent where it was looked at
    peek: "Callable[[HeldJob], Placement] | None" = None

    @property
    def pool(self) -> PoolSnapshot | None:
        if self.best is None:
            return None
        assert self.view is not None
        return self.view.look.roster.pools[self.best]

    @property
    def drag(self) -> Drag:
        """How much slower than its rates the pool of choice was taken to be."""
        if self.best is None:
            return AS_TOLD
        assert self.view is not None
        roster = self.view.look.roster
        return Drag(roster.read_drag.item(self.best), roster.decode_drag.item(self.best))

    @property
    def able(self) -> int:
        """How many pools could run it."""
        return 0 if self.rows is None else int(np.isfinite(self.rows).sum())
