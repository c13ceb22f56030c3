"""The figures as a person reads them, bars that were missed in red. Knows nothing of how anything
was measured."""

from collections.abc import Iterator, Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict
from rich.console import RenderableType
from rich.markup import escape
from rich.table import Table

from routing.simulation.schedulers import NOIDLE
from tests.bench.figures import Latency
from tests.bench.machine import Machine
from tests.bench.routing.bars import RULES, Aim, Bar, missed
from tests.bench.routing.commands import CommandFigures
from tests.bench.routing.decision import DecisionFigures
from tests.bench.routing.replays import Replayed
from tests.bench.routing.scale import ScaleFigures
from tests.bench.tables import machine_table, plain_table


class RoutingReport(BaseModel):
    """What `--json` writes; a part that was not run is empty or absent."""

    model_config = ConfigDict(frozen=True)

    taken: datetime
    seconds: float
    machine: Machine
    load_at_end: tuple[float, ...]
    # of each trace from its beginning; absent: all
    rows: int | None
    # what was asked for and could not be measured, with the reason
    left_out: tuple[str, ...] = ()
    replays: tuple[Replayed, ...] = ()
    decision: DecisionFigures | None = None
    scale: ScaleFigures | None = None
    commands: tuple[CommandFigures, ...] = ()
    bars: tuple[Bar, ...] = ()

    def bar(self, where: str, aim: Aim) -> Bar | None:
        return next((bar for bar in self.bars if (bar.where, bar.aim) == (where, aim)), None)


def draw(report: RoutingReport) -> Iterator[RenderableType]:
    yield machine_table(report.machine, report.load_at_end, report.seconds)
    released = [one for one in report.replays if one.place.load is None]
    arrivals = [one for one in report.replays if one.place.load is not None]
    if released:
        yield _released(report, released)
    if arrivals:
        yield _arrivals(report, arrivals)
    if any(bar.aim is Aim.TRAINED for bar in report.bars):
        yield _training(report, arrivals)
    if report.decision is not None:
        yield _decision(report.decision)
    if report.scale is not None:
        yield _scale(report.scale)
    if report.commands:
        yield _commands(report.commands)
    yield from _closing(report)


def coloured(bar: Bar | None, digits: int = 2) -> str:
    """The figure and what it was made of."""
    if bar is None:
        return "–"
    found = "?" if bar.found is None else f"{bar.found:.{digits}f}"
    told = escape(f"{found} ({bar.of})" if bar.of else found)
    return told if bar.met else f"[red]{told}[/]"


def _released(report: RoutingReport, replays: Sequence[Replayed]) -> Table:
    columns = ("noidle", "idle at most", *RULES)
    table = plain_table("all at once: makespan by lower bound", "trace, cluster", columns)
    for one in replays:
        where = one.place.words
        mine = report.bar(where, Aim.BY_BOUND)
        table.add_row(
            f"{one.place.trace}, {one.place.cluster}",
            coloured(mine.model_copy(update={"of": ""}) if mine else None, 3),
            coloured(report.bar(where, Aim.IDLE), 3),
            *(_by_bound(one, name) for name in RULES),
        )
    return table


def _by_bound(one: Replayed, name: str) -> str:
    found = one.figures.get(name)
    return "–" if found is None else f"{found.makespan_s / one.lower_bound_s:.2f}"


def _arrivals(report: RoutingReport, replays: Sequence[Replayed]) -> Table:
    title = "jobs come over time: interactive jobs by the best plain rule's (noidle, best rule)"
    columns = ("load", "TTFT p99 s", "share in time", "jobs in time a second", "idle at most")
    table = plain_table(title, "trace, cluster", columns)
    for one in replays:
        where = one.place.words
        aims = (Aim.TTFT, Aim.IN_TIME, Aim.PER_S)
        table.add_row(
            f"{one.place.trace}, {one.place.cluster}",
            f"{one.place.load:g}",
            *(coloured(report.bar(where, aim)) for aim in aims),
            coloured(report.bar(where, Aim.IDLE), 3),
        )
    return table


def _training(report: RoutingReport, replays: Sequence[Replayed]) -> Table:
    title = "an endless training behind the jobs"
    columns = ("load", "interactive TTFT p99 by that without", "trained of what could be")
    table = plain_table(title, "trace, cluster", columns)
    for one in replays:
        where = one.place.words
        table.add_row(
            f"{one.place.trace}, {one.place.cluster}",
            f"{one.place.load:g}",
            coloured(report.bar(where, Aim.BESIDE_TRAINING)),
            coloured(report.bar(where, Aim.TRAINED)),
        )
    return table


def _decision(figures: DecisionFigures) -> Table:
    title = (
        f"decisions with {figures.pools:,} pools, {figures.slots:,} slots ({figures.taken:,} taken "
        f"in the end) and {figures.held:,} held jobs, CPU ms"
    )
    columns = ("p50", "p95", "p99", "mean", "looks", "heads", "leases")
    table = plain_table(title, "look", columns)
    for one in figures.kinds:
        extra = (f"{one.heads:.0f}", f"{one.leases:.1f}")
        table.add_row(one.what, *_latency(one.cpu), *extra)
    table.add_section()
    table.add_row("all that are not deep", *_latency(figures.shallow), "", "")
    table.add_row("whole look of the pump, board in memory", *_latency(figures.pump), "", "")
    return table


def _latency(found: Latency) -> tuple[str, ...]:
    values = (found.p50_ms, found.p95_ms, found.p99_ms, found.mean_ms)
    return *(f"{value:.2f}" for value in values), str(found.samples)


def _scale(figures: ScaleFigures) -> Table:
    title = f"a simulation of {figures.jobs:,} jobs on {figures.hosts:,} hosts"
    table = plain_table(title, "", ("",))
    table.add_row("pools", f"{figures.pools:,}")
    table.add_row("CPU s of making the jobs and their bound", f"{figures.prepare_cpu_s:.0f}")
    table.add_row("CPU s of the simulation", f"{figures.cpu_s:.0f}")
    table.add_row("all, s by the clock", f"{figures.wall_s:.0f}")
    table.add_row("ms a job", f"{1000 * figures.cpu_s / figures.jobs:.2f}")
    table.add_row("memory at most, MiB", f"{figures.peak_bytes / (1 << 20):.0f}")
    return table


def _commands(found: Sequence[CommandFigures]) -> Table:
    columns = ("pools", "a job's life", "of these scripts", "a look")
    table = plain_table("Redis commands, as the server counts them", "held jobs", columns)
    for one in found:
        counts = (one.pools, one.commands, one.scripts, sum(one.look.values()))
        table.add_row(f"{one.held:,}", *(f"{count:,}" for count in counts))
    return table


def _closing(report: RoutingReport) -> Iterator[RenderableType]:
    for told in report.left_out:
        yield f"[yellow]not measured: {escape(told)}[/]"
    for one in report.replays:
        for name, fault in one.faults.items():
            yield f"[red]{escape(one.place.words)}, {name}: {escape(fault.splitlines()[-1])}[/]"
    failed = missed(report.bars)
    if not failed:
        yield f"[green]all {len(report.bars)} bars met[/]" if report.bars else "no bar"
        return
    title = f"missed: {len(failed)} of {len(report.bars)} bars"
    table = plain_table(title, "where", ("what", "bar", "found"))
    for bar in failed:
        table.add_row(escape(bar.where), bar.aim.value, bar.wanted, coloured(bar, 3))
    yield table


def line(one: Replayed, bars: Sequence[Bar]) -> str:
    """What is told as soon as a replay is done."""
    own = [bar for bar in bars if bar.where == one.place.words]
    cpu_s = sum(one.cpu_s.values())
    told = f"{one.place.words}: {one.jobs:,} jobs, {cpu_s:.0f} s of CPU"
    if NOIDLE not in one.figures:
        return f"{told}; noidle failed"
    short = "; ".join(f"{bar.aim} {bar.found or 0:.3f} ({bar.wanted})" for bar in missed(own))
    return f"{told}; {len(own) - len(missed(own))} of {len(own)} bars met" + (
        f", missed: {short}" if short else ""
    )
