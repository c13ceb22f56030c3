"""How long the policy takes for a decision: the router's own pump, looking at a thousand pools and
ten thousand held jobs. Owns what is timed; knows nothing of bars.

Timed is the CPU time of each call of `decide` as the pump makes it, upkeep of its roster included:
not what the board takes, nor what the pump does with the answer."""

import time
from collections.abc import Callable, Sequence
from typing import Any
from unittest import mock

from pydantic import BaseModel, ConfigDict

import routing.pump
from routing.garbage import look_at_old_objects_seldom
from routing.policy import decide
from routing.pump import Pump
from routing.simulation.described import Described, read_cluster
from tests.bench.figures import Latency
from tests.bench.routing.crowd import CONTEXT, Crowd
from tests.bench.routing.scale import CLUSTER, many

POOLS = 1_000
HELD = 10_000
SLOTS = 8
"""Of a pool at most: more take longer to fill."""
LOOK_S = 0.025
"""Virtual time from one look to the next: about what a look with leases takes at so many pools."""
FILLING = 300
"""Looks until as many slots are taken as will be; what waits may be better off waiting."""
LOOKS = 300
"""Measured from then on."""


class LookFigures(BaseModel):
    """CPU milliseconds of decisions of one kind."""

    model_config = ConfigDict(frozen=True)

    what: str
    cpu: Latency
    # means
    heads: float
    leases: float


class DecisionFigures(BaseModel):
    """Of one pump."""

    model_config = ConfigDict(frozen=True)

    pools: int
    slots: int
    # of these, in the end
    taken: int
    held: int
    kinds: tuple[LookFigures, ...]
    # all that are not deep, and those that are, if there were two
    shallow: Latency
    deep: Latency | None
    # whole looks of the pump, a board in memory included
    pump: Latency


class _Look(BaseModel):
    model_config = ConfigDict(frozen=True)

    cpu_ms: float
    heads: int
    leases: int
    deep: bool
    # snapshots were read since the last one
    fresh: bool
    # the pools had taken what they would
    settled: bool


def measure_decisions(
    say: Callable[[str], None], pools: int = POOLS, held: int = HELD
) -> DecisionFigures:
    say(f"{pools:,} pools come, and {held:,} jobs")
    hosts = read_cluster(CLUSTER)
    crowd = Crowd(many(_roomy(hosts), pools // len(hosts.pools)), held=held)
    return _Watch(crowd, say).figures(pools, held)


def _roomy(described: Described) -> Described:
    """Small pools that are full when their slots are."""
    pools = tuple(
        pool.model_copy(update={"slots": min(pool.slots, SLOTS), "kv_tokens": SLOTS * CONTEXT})
        for pool in described.pools
    )
    return described.model_copy(update={"pools": pools})


class _Watch:
    """Looks on while the pools fill, and then while they are full."""

    def __init__(self, crowd: Crowd, say: Callable[[str], None]) -> None:
        self._crowd = crowd
        self._say = say
        self._looks: list[_Look] = []
        self._pump_ms: list[float] = []
        self._seen: Any = None
        self._settled = False

    def figures(self, pools: int, held: int) -> DecisionFigures:
        # as a router does
        look_at_old_objects_seldom()
        with mock.patch.object(routing.pump, "decide", self._timed):
            self._run(Pump(self._crowd.board, "router", clock=self._crowd.clock))
        shallow = [look.cpu_ms for look in self._looks if not look.deep]
        deep = [look.cpu_ms for look in self._looks if look.deep]
        return DecisionFigures(
            pools=pools,
            slots=self._crowd.slots,
            taken=self._crowd.taken,
            held=held,
            kinds=tuple(_kinds(self._looks)),
            shallow=Latency.of(shallow),
            deep=Latency.of(deep) if len(deep) > 1 else None,
            pump=Latency.of(self._pump_ms),
        )

    def _run(self, pump: Pump) -> None:
        for number in range(FILLING + LOOKS):
            self._settled = number >= FILLING
            began_ns = time.thread_time_ns()
            pump.look()
            self._pump_ms.append((time.thread_time_ns() - began_ns) / 1e6)
            self._crowd.pass_time(LOOK_S)
            if number % 100 == 0:
                self._say(f"look {number} of {FILLING + LOOKS}, {self._crowd.taken:,} slots taken")

    def _timed(self, held: Sequence[Any], cluster: Any, *given: Any, **named: Any) -> Any:
        began_ns = time.thread_time_ns()
        placements = decide(held, cluster, *given, **named)
        cpu_ms = (time.thread_time_ns() - began_ns) / 1e6
        self._looks.append(
            _Look(
                cpu_ms=cpu_ms,
                heads=len(held),
                leases=sum(one.grant is not None for one in placements),
                deep=named["deep"],
                fresh=cluster.pools is not self._seen,
                settled=self._settled,
            )
        )
        self._seen = cluster.pools
        return placements


def _kinds(looks: Sequence[_Look]) -> list[LookFigures]:
    shallow = [look for look in looks if not look.deep]
    kinds = {
        "while pools fill": [look for look in shallow if not look.settled],
        "then": [look for look in shallow if look.settled],
        "all on snapshots just read": [look for look in shallow if look.fresh],
        "deep": [look for look in looks if look.deep],
    }
    return [
        LookFigures(
            what=what,
            cpu=Latency.of([look.cpu_ms for look in own]),
            heads=sum(look.heads for look in own) / len(own),
            leases=sum(look.leases for look in own) / len(own),
        )
        for what, own in kinds.items()
        if len(own) > 1
    ]
