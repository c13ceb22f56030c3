"""The figures as a person reads them. Knows nothing of how anything was measured."""

from collections.abc import Callable
from datetime import datetime
from statistics import median

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from tests.bench.machine import Machine
from tests.bench.reality.compare import PartFigures, Run
from tests.bench.reality.lives import STAGES, Side
from tests.bench.tables import aim_table, machine_table, plain_table

_FIGURES: dict[str, Callable[[Side], float]] = {
    "makespan": lambda side: side.makespan_s,
    "median finish": lambda side: side.finish_p50_s,
    "TTFT p50": lambda side: side.ttft_p50_s,
    "TTFT p99": lambda side: side.ttft_p99_s,
}

_SLOWER = (
    "slower: a decode step as the pool told it after the run, by what it told before and was"
    " simulated with; far from 0, others use the machine and the run says little"
)


class RealityReport(BaseModel):
    """What `--json` writes."""

    model_config = ConfigDict(frozen=True)

    taken: datetime
    seconds: float
    machine: Machine
    load_at_end: tuple[float, ...]
    trace: str
    slice_s: float
    parts: tuple[PartFigures, ...]


def draw(report: RealityReport) -> list[Table]:
    tables = [machine_table(report.machine, report.load_at_end, report.seconds)]
    for part in report.parts:
        tables += [_pools(part), _runs(part), _stages(part)]
    aims = [aim for part in report.parts for aim in part.aims]
    return [*tables, aim_table(aims)]


def _pools(part: PartFigures) -> Table:
    columns = (
        "slots",
        "prefill tokens/s",
        "step ms",
        "ms a sequence",
        "chunk",
        "jobs",
        "simulated",
    )
    table = plain_table(f"{part.name}: {part.jobs} requests", "pool", columns)
    for pool in part.pools:
        table.add_row(
            pool.pool,
            str(pool.slots),
            f"{pool.prefill_tokens_per_s:.0f}",
            f"{pool.step_s * 1000:.1f}",
            f"{pool.step_s_per_sequence * 1000:.2f}",
            str(pool.chunk_tokens),
            f"{median(run.real.jobs.get(pool.pool, 0) for run in part.runs):.0f}",
            f"{median(run.simulated.jobs.get(pool.pool, 0) for run in part.runs):.0f}",
        )
    table.caption = "\n".join(part.words)
    return table


def _runs(part: PartFigures) -> Table:
    title = f"{part.name}: seconds, real / simulated, and how far the real run is off"
    columns = [*_FIGURES, "same pool", "evicted", "CPU", "late ms", "slower"]
    table = plain_table(title, "run", columns)
    for number, run in enumerate(part.runs, 1):
        table.add_row(
            str(number),
            *(_pair(run, figure) for figure in _FIGURES.values()),
            f"{100 * run.same_pool_share:.0f} %",
            f"{run.real.evicted}/{run.simulated.evicted}",
            f"{100 * run.cpu_share:.0f} %",
            f"{1000 * run.late_s:.0f}",
            "" if run.slower is None else f"{100 * (run.slower - 1):+.0f} %",
        )
    table.caption = _SLOWER if any(run.slower is not None for run in part.runs) else None
    table.add_section()
    spreads = []
    for figure in _FIGURES.values():
        off = [run.percent(figure) for run in part.runs]
        spreads.append(f"{median(off):+.1f} % ({min(off):+.1f} … {max(off):+.1f})")
    table.add_row("all", *spreads)
    return table


def _pair(run: Run, figure: Callable[[Side], float]) -> str:
    return f"{figure(run.real):.2f} / {figure(run.simulated):.2f} {run.percent(figure):+.1f} %"


def _stages(part: PartFigures) -> Table:
    title = f"{part.name}: where the time goes, medians in seconds"
    table = plain_table(title, "stage", ("real", "simulated", "real less simulated, job by job"))
    for at, stage in enumerate(STAGES):
        table.add_row(
            stage,
            f"{median(run.real.stages_s[at] for run in part.runs):.3f}",
            f"{median(run.simulated.stages_s[at] for run in part.runs):.3f}",
            f"{median(run.differences_s[at] for run in part.runs):+.3f}",
        )
    table.add_section()
    table.add_row(
        "arrival to end",
        f"{median(run.real.finish_p50_s for run in part.runs):.3f}",
        f"{median(run.simulated.finish_p50_s for run in part.runs):.3f}",
        f"{median(run.differences_s[-1] for run in part.runs):+.3f}",
    )
    return table
