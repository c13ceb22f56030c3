"""The figures as a person reads them. Knows nothing of how anything was measured."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from tests.bench.engine import EngineFigures
from tests.bench.figures import Aim
from tests.bench.idle import IdleFigures
from tests.bench.machine import Machine
from tests.bench.routed import RoutedFigures
from tests.bench.tables import aim_table, machine_table, plain_table, spread

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
    tables = [machine_table(report.machine, report.load_at_end, report.seconds)]
    if report.routed is not None:
        tables.append(_routed(report.routed))
    if report.engine is not None:
        tables.append(_engine(report.engine))
    if report.idle is not None:
        tables.append(_idle(report.idle))
    if report.aims:
        tables.append(aim_table(report.aims))
    return tables


def _routed(figures: RoutedFigures) -> Table:
    plan = figures.plan
    title = (
        f"an empty job: {len(figures.ways[0].jobs_per_s.rounds)} rounds of {plan.singles} one at a"
        f" time and {plan.flood} at once, {plan.slots} slots"
    )
    columns = ("p50 ms", "p95 ms", "p99 ms", "jobs/s", "CPU ms a job")
    table = plain_table(title, "way", columns)
    for way in figures.ways:
        latency = way.latency
        table.add_row(
            way.name,
            *(f"{value:.2f}" for value in (latency.p50_ms, latency.p95_ms, latency.p99_ms)),
            spread(way.jobs_per_s, 0),
            spread(way.cpu_ms_a_job, 2),
        )
    return table


def _engine(figures: EngineFigures) -> Table:
    plan, count = figures.plan, len(figures.alone_tokens_per_s.rounds)
    title = (
        f"an engine: {figures.parameters / 1e6:.1f} M parameters, {plan.streams} streams of"
        f" {plan.tokens} tokens, {figures.threads} threads, {count} rounds"
    )
    columns = ("tokens/s", "engine's CPU ms a token", "all others'")
    table = plain_table(title, "where", columns)
    table.add_row(
        "alone", spread(figures.alone_tokens_per_s, 1), spread(figures.alone_cpu_ms_a_token, 2)
    )
    table.add_row(
        "in the cluster",
        spread(figures.cluster_tokens_per_s, 1),
        spread(figures.engine_cpu_ms_a_token, 2),
        spread(figures.around_cpu_ms_a_token, 2),
    )
    table.caption = "token for token the same" if figures.same_tokens else "[red]tokens differ[/]"
    return table


def _idle(figures: IdleFigures) -> Table:
    title = f"noidle up without a model, {figures.plan.window_s:g} s"
    columns = ("PSS MiB", "RSS MiB", "CPU %", "wake-ups/s", "threads")
    table = plain_table(title, "process", columns)
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
