"""What routing costs: the same empty job sent to Celery directly, over two bare hops, and over
noidle, in turns, through the same Valkey with the same events.

Owns the rounds and what they are compared by."""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from noidle import Client
from noidle.jobs import EngineName
from ops.plan import PerEngine, UpOptions
from tests.bench.celery_side import DIRECT, FIRST_HOP, HOP, SECOND_HOP, WORK, make_app
from tests.bench.clusters import cluster
from tests.bench.figures import Aim, Latency, Spread, differences, ratios, rounds
from tests.bench.processes import celery_worker, cpu_s
from tests.bench.ways import PROMPT, CeleryWay, ClientWay, Way, routed_by_celery
from tests.valkey_process import ValkeyProcess

NOOP = Path(__file__).with_name("noop.toml")
WARM_UP = 50
HOP_THREADS = 4
"""As many as a router of noidle has."""
DIRECT_WAY, HOPS_WAY, ROUTED_WAY = "direct Celery", "bare two-hop Celery", "routed by noidle"


class RoutedPlan(BaseModel):
    """How much of it."""

    model_config = ConfigDict(frozen=True)

    # many short ones: what else runs here then disturbs all ways alike
    rounds: int = 14
    # jobs of a round one at a time, and jobs of a round all at once
    singles: int = 25
    flood: int = 200
    slots: int = 8
    # no further round begins after this
    budget_s: float = 100.0


class WayFigures(BaseModel):
    """One way, over all rounds."""

    model_config = ConfigDict(frozen=True)

    name: str
    latency: Latency
    p50_ms: Spread
    jobs_per_s: Spread
    # of all processes that took part, the producer among them, while many were in flight
    cpu_ms_a_job: Spread


class RoutedFigures(BaseModel):
    """All ways, and how they compare."""

    model_config = ConfigDict(frozen=True)

    plan: RoutedPlan
    ways: tuple[WayFigures, ...]
    aims: tuple[Aim, ...]


def measure_routed(folder: Path, plan: RoutedPlan, say: Callable[[str], None]) -> RoutedFigures:
    with _ways(folder, plan, say) as ways:
        say("warming up")
        for way in ways:
            way.many(WARM_UP)
        return _rounds(ways, plan, say)


@contextmanager
def _ways(folder: Path, plan: RoutedPlan, say: Callable[[str], None]) -> Iterator[list[Way]]:
    """Everything is up inside; one Valkey serves all."""
    with ExitStack() as stack:
        say("starting Valkey, the Celery workers and noidle")
        server = ValkeyProcess(folder)
        stack.callback(server.stop)
        server.start()
        concurrency = ("--concurrency", str(plan.slots), "--events")
        for queue, options in {
            DIRECT: concurrency,
            # noidle's routers send no events either
            FIRST_HOP: ("--concurrency", str(HOP_THREADS)),
            SECOND_HOP: concurrency,
        }.items():
            stack.enter_context(celery_worker(folder, server.url, queue, *options))
        options = UpOptions(
            redis=server.url,
            engines=(EngineName.CPU,),
            flower=False,
            slots=PerEngine(every=plan.slots),
            program=PerEngine(every=str(NOOP)),
        )
        stack.enter_context(cluster(folder / "routed", options, say))
        app = stack.enter_context(make_app(server.url, backend=server.url))
        client = stack.enter_context(Client(server.url))
        yield [
            CeleryWay(DIRECT_WAY, app, WORK, DIRECT, PROMPT),
            CeleryWay(HOPS_WAY, app, HOP, FIRST_HOP, PROMPT),
            ClientWay(ROUTED_WAY, client),
            routed_by_celery(app),
        ]


def _rounds(ways: Sequence[Way], plan: RoutedPlan, say: Callable[[str], None]) -> RoutedFigures:
    singles: dict[str, list[list[float]]] = {way.name: [] for way in ways}
    floods: dict[str, list[float]] = {way.name: [] for way in ways}
    costs: dict[str, list[float]] = {way.name: [] for way in ways}
    for number in rounds(plan.rounds, plan.budget_s):
        # whoever comes first in a round is another one each time
        turn = number % len(ways)
        for way in [*ways[turn:], *ways[:turn]]:
            singles[way.name].append([_timed_ms(way.one) for _ in range(plan.singles)])
            used_s = cpu_s()
            spent_ms = _timed_ms(lambda way=way: way.many(plan.flood))
            floods[way.name].append(plan.flood / spent_ms * 1000)
            costs[way.name].append((cpu_s() - used_s) / plan.flood * 1000)
        told = ", ".join(f"{name} {rates[-1]:.0f}/s" for name, rates in floods.items())
        say(f"round {number + 1} of {plan.rounds}: {told}")
    found = {
        way.name: _figures(way.name, singles[way.name], floods[way.name], costs[way.name])
        for way in ways
    }
    return RoutedFigures(plan=plan, ways=tuple(found.values()), aims=_aims(found))


def _timed_ms(call: Callable[[], None]) -> float:
    began_s = time.perf_counter()
    call()
    return (time.perf_counter() - began_s) * 1000


def _figures(
    name: str, singles: list[list[float]], floods: list[float], costs: list[float]
) -> WayFigures:
    return WayFigures(
        name=name,
        latency=Latency.of([one for part in singles for one in part]),
        p50_ms=Spread.of([Latency.of(part).p50_ms for part in singles]),
        jobs_per_s=Spread.of(floods),
        cpu_ms_a_job=Spread.of(costs),
    )


def _aims(found: dict[str, WayFigures]) -> tuple[Aim, ...]:
    direct, hops, routed = found[DIRECT_WAY], found[HOPS_WAY], found[ROUTED_WAY]
    return (
        Aim(
            what="routed / two-hop, jobs/s",
            found=ratios(routed.jobs_per_s.rounds, hops.jobs_per_s.rounds),
            unit="",
            at_least=0.9,
        ),
        Aim(
            what="routed / direct, jobs/s",
            found=ratios(routed.jobs_per_s.rounds, direct.jobs_per_s.rounds),
            unit="",
            at_least=0.6,
        ),
        Aim(
            what="routed − direct, p50",
            found=differences(routed.p50_ms.rounds, direct.p50_ms.rounds),
            unit=" ms",
            at_most=3,
        ),
    )
