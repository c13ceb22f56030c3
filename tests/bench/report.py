"""The figures as a person reads them: tables, aims beside what was found, red where missed.

Knows nothing of how anything was measured."""

from collections.abc import Sequence
from datetime import datetime

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from tests.bench.engine import EngineFigures
from tests.bench.figures import Aim, Spread
from tests.bench.idle import IdleFigures
from tests.bench.machine import Machine
from tests.bench.routed import RoutedFigures

_MIB = 1 << 20


class Report(BaseModel):
    """What `--json` writes; a part that was not run is absent."""

    model_config = ConfigDict(frozen=True)

    taken: datetime
    seconds: float
    machine: Machine
    load_at_end: tuple[float, ...]
    routed: RoutedFigures | None = None
    engine: EngineFigures | None = None
    idle: IdleFigures | None = None

    @property
    def aims(self) -> list[Aim]:
        parts = (self.routed, self.engine)
        return [aim for part in parts if part is not None for aim in part.aims]


def draw(report: Report) -> list[Table]:
    tables = [_machine(report)]
    if report.routed is not None:
        tables.append(_routed(report.routed))
    if report.engine is not None:
        tables.append(_engine(report.engine))
    if report.idle is not None:
        tables.append(_idle(report.idle))
    if report.aims:
        tables.append(_aims(report.aims))
    return tables


def _table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def _machine(report: Report) -> Table:
    machine = report.machine
    table = Table(title="machine", title_justify="left", title_style="bold", show_header=False)
    memory = f", {machine.memory_bytes / (1 << 30):.0f} GiB" if machine.memory_bytes else ""
    table.add_row("hardware", f"{machine.cpu}, {machine.cores} cores{memory}")
    table.add_row("system", machine.system)
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    table.add_row("versions", versions)
    told = f"{machine.load[0]} at the start, {report.load_at_end[0]} at the end"
    if machine.load[0] > machine.cores / 2:
        told = f"[yellow]{told}: others use this machine; trust ratios, not figures[/]"
    table.add_row("load", told)
    table.add_row("took", f"{report.seconds:.0f} s")
    return table


def _routed(figures: RoutedFigures) -> Table:
    plan = figures.plan
    title = (
        f"an empty job: {len(figures.ways[0].jobs_per_s.rounds)} rounds of {plan.singles} one at a"
        f" time and {plan.flood} at once, {plan.slots} slots"
    )
    columns = ("p50 ms", "p95 ms", "p99 ms", "jobs/s", "CPU ms a job")
    table = _table(title, "way", columns)
    for way in figures.ways:
        latency = way.latency
        table.add_row(
            way.name,
            *(f"{value:.2f}" for value in (latency.p50_ms, latency.p95_ms, latency.p99_ms)),
            _spread(way.jobs_per_s, 0),
            _spread(way.cpu_ms_a_job, 2),
        )
    return table


def _engine(figures: EngineFigures) -> Table:
    plan, count = figures.plan, len(figures.alone_tokens_per_s.rounds)
    title = (
        f"an engine: {figures.parameters / 1e6:.1f} M parameters, {plan.streams} streams of"
        f" {plan.tokens} tokens, {figures.threads} threads, {count} rounds"
    )
    columns = ("tokens/s", "engine's CPU ms a token", "all others'")
    table = _table(title, "where", columns)
    table.add_row(
        "alone", _spread(figures.alone_tokens_per_s, 1), _spread(figures.alone_cpu_ms_a_token, 2)
    )
    table.add_row(
        "in the cluster",
        _spread(figures.cluster_tokens_per_s, 1),
        _spread(figures.engine_cpu_ms_a_token, 2),
        _spread(figures.around_cpu_ms_a_token, 2),
    )
    table.caption = "token for token the same" if figures.same_tokens else "[red]tokens differ[/]"
    return table


def _idle(figures: IdleFigures) -> Table:
    title = f"noidle up without a model, {figures.plan.window_s:g} s"
    columns = ("PSS MiB", "RSS MiB", "CPU %", "wake-ups/s", "threads")
    table = _table(title, "process", columns)
    for one in figures.processes:
        pss = "" if one.pss_bytes is None else f"{one.pss_bytes / _MIB:.0f}"
        table.add_row(
            one.name,
            pss,
            f"{one.rss_bytes / _MIB:.0f}",
            f"{one.cpu_percent:.1f}",
            f"{one.wakeups_per_s:.0f}",
            str(one.threads),
        )
    table.add_section()
    table.add_row(
        "all",
        f"{sum(one.pss_bytes or 0 for one in figures.processes) / _MIB:.0f}",
        "",
        f"{sum(one.cpu_percent for one in figures.processes):.1f}",
        f"{sum(one.wakeups_per_s for one in figures.processes):.0f}",
        str(sum(one.threads for one in figures.processes)),
    )
    return table


def _aims(aims: Sequence[Aim]) -> Table:
    table = _table("aims", "what", ("aim", "found", ""))
    table.caption = "medians of all rounds; in brackets the middle half of them"
    for aim in aims:
        colour, word = ("green", "met") if aim.met else ("red", "missed")
        found = f"{_spread(aim.found, 2)}{aim.unit}"
        table.add_row(aim.what, aim.wanted, f"[{colour}]{found}[/]", f"[{colour}]{word}[/]")
    return table


def _spread(spread: Spread, digits: int) -> str:
    low, high = f"{spread.low:.{digits}f}", f"{spread.high:.{digits}f}"
    return f"{spread.median:.{digits}f} ({low} … {high})"
