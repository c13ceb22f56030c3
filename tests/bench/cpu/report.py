"""The figures as a person reads them. Knows nothing of how anything was measured."""

from datetime import datetime

from pydantic import BaseModel, ConfigDict
from rich.table import Table

from tests.bench.cpu.memory import ALLOWED_BYTES, ALLOWED_GROWTH_BYTES, MemoryFigures
from tests.bench.cpu.shape import Format
from tests.bench.cpu.speed import NOIDLE, SpeedFigures
from tests.bench.cpu.waiting import WaitingFigures
from tests.bench.figures import Spread
from tests.bench.machine import Machine
from tests.bench.tables import aim_table, machine_table, plain_table, spread

_MIB = 1 << 20


class CpuReport(BaseModel):
    """What `--json` writes; a part that was not run is absent."""

    model_config = ConfigDict(frozen=True)

    taken: datetime
    seconds: float
    machine: Machine
    load_at_end: tuple[float, ...]
    speed: SpeedFigures | None = None
    waiting: WaitingFigures | None = None
    memory: tuple[MemoryFigures, ...] = ()


def draw(report: CpuReport) -> list[Table]:
    tables = [machine_table(report.machine, report.load_at_end, report.seconds)]
    aims = []
    if report.speed is not None:
        tables.append(_speed(report.speed))
        aims += report.speed.aims
    if report.waiting is not None:
        tables.append(_waiting(report.waiting))
        aims += report.waiting.aims
    if report.memory:
        tables.append(_memory(report.memory))
    if aims:
        tables.append(aim_table(aims))
    return tables


def _speed(figures: SpeedFigures) -> Table:
    top = figures.bandwidth_bytes_per_s
    title = (
        f"0.35 billion parameters, {figures.threads} threads, {figures.rounds} rounds, memory "
        f"read at {top.median / 1e9:.1f} GB/s ({top.low / 1e9:.1f}…{top.high / 1e9:.1f})"
    )
    columns = ("side", "prefill tokens/s", "decode tokens/s", "of bandwidth", "first token alike")
    table = plain_table(title, "weights, sequences", columns)
    last = {(row.format, row.sequences): row for row in figures.rows}
    for row in figures.rows:
        table.add_row(
            f"{row.format}, {row.sequences}" if row.side == NOIDLE else "",
            row.side,
            spread(row.prefill_tokens_per_s, 0),
            spread(row.decode_tokens_per_s, 1),
            _percent(row.bandwidth_share),
            # packed weights are not the same numbers on both sides
            f"{row.first_tokens_alike:.0%}" if row.format is Format.BF16 else "",
            end_section=row is last[row.format, row.sequences],
        )
    table.caption = "; ".join(f"{name}: {told}" for name, told in figures.versions.items())
    return table


def _percent(share: Spread) -> str:
    return f"{share.median:.0%} ({share.low:.0%}…{share.high:.0%})"


def _waiting(figures: WaitingFigures) -> Table:
    title = (
        f"first token of {figures.short_tokens} tokens beside a prompt of {figures.long_tokens},"
        f" {figures.format}, chunks of {figures.chunk_tokens}"
    )
    table = plain_table(title, "", ("ms",))
    for name, found in (
        ("idle", figures.idle_s),
        ("beside the long prompt, come at the worst moment", figures.beside_s),
        ("one chunk of the long prompt", figures.chunk_s),
    ):
        table.add_row(name, spread(_ms(found), 0))
    table.add_row("the long prompt, tokens/s", spread(figures.long_tokens_per_s, 0))
    return table


def _ms(found: Spread) -> Spread:
    return Spread.of([1000 * value for value in found.rounds])


def _memory(figures: tuple[MemoryFigures, ...]) -> Table:
    jobs = figures[0].jobs
    title = f"working set of loading, packing and {jobs} jobs, MiB"
    columns = ("torch alone", "weights", "cache", "peak", "beyond these", "growth")
    table = plain_table(title, "weights", columns)
    for one in figures:
        sizes = (one.bare_bytes, one.weight_bytes, one.cache_bytes, one.peak_bytes)
        table.add_row(
            one.format,
            *(f"{size / _MIB:.0f}" for size in sizes),
            _bounded(one.above_bytes, ALLOWED_BYTES),
            _bounded(one.growth_bytes, ALLOWED_GROWTH_BYTES),
        )
    return table


def _bounded(found: int, allowed: int) -> str:
    told = f"{found / _MIB:.0f} (≤ {allowed / _MIB:.0f})"
    return told if found <= allowed else f"[red]{told}[/]"
