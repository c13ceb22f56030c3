"""The schedulers by name. Owns the names; knows nothing of what they do."""

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noidle.errors import ConfigError
from routing.simulation.described import Described
from routing.simulation.desk import Desk
from routing.simulation.early import (
    BoundEarly,
    EarliestFinish,
    Random,
    RoundRobin,
    StaticByLength,
    TwoChoices,
    shortest_queue,
)
from routing.simulation.late import (
    BoundLate,
    accelerator_first,
    earliest_finish,
    highest_free_share,
)
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Scheduler
from routing.simulation.request import Request

NOIDLE = "noidle"
POLICIES = {
    NOIDLE: "the policy that runs in production",
    "static": "short to the CPUs, long to the accelerators; border tuned on the trace",
    "random": "each pool as likely",
    "round-robin": "each pool in turn",
    "shortest-queue": "the pool with the fewest jobs",
    "two-choices": "the emptier of two pools drawn at random",
    "accelerator-first": "accelerators while one has room, else CPUs",
    "free-share": "the pool with the largest free share of slots",
    "early-finish": "bound at arrival to the earliest predicted finish",
    "late-fcfs": "bound when a pool has room, first come first served",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Stage:
    """What a scheduler is made for."""

    described: Described
    pools: Sequence[SimulatedPool]
    # all of them, for a rule that is tuned beforehand
    requests: Sequence[Request]
    # for those that draw lots
    seed: int
    # an endless one behind the requests, where the scheduler knows of training
    training: bool = False

    @property
    def dice(self) -> random.Random:
        return random.Random(self.seed)


_MAKERS: dict[str, Callable[[Stage], Scheduler]] = {
    NOIDLE: lambda at: Desk(at.described, at.pools, training=at.training),
    "static": lambda at: BoundEarly(at.pools, StaticByLength(at.pools, at.requests)),
    "random": lambda at: BoundEarly(at.pools, Random(at.dice)),
    "round-robin": lambda at: BoundEarly(at.pools, RoundRobin()),
    "shortest-queue": lambda at: BoundEarly(at.pools, shortest_queue),
    "two-choices": lambda at: BoundEarly(at.pools, TwoChoices(at.dice)),
    "accelerator-first": lambda at: BoundLate(at.pools, accelerator_first),
    "free-share": lambda at: BoundLate(at.pools, highest_free_share),
    "early-finish": lambda at: BoundEarly(at.pools, EarliestFinish(at.pools)),
    "late-fcfs": lambda at: BoundLate(at.pools, earliest_finish, by_class=False),
}


def make_scheduler(name: str, stage: Stage) -> Scheduler:
    """Raises ConfigError for an unknown name."""
    if name not in _MAKERS:
        raise ConfigError(f"--policy {name}: allowed are {', '.join(POLICIES)}, and all")
    return _MAKERS[name](stage)
