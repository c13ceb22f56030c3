"""Tables that every bench shows: the machine, figures with their spread, aims beside what was
found, red where missed. Knows nothing of how anything was measured."""

from collections.abc import Sequence

from rich.table import Table

from tests.bench.figures import Aim, Spread
from tests.bench.machine import Machine


def plain_table(title: str, first: str, columns: Sequence[str]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    table.add_column(first)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def machine_table(machine: Machine, load_at_end: tuple[float, ...], seconds: float) -> Table:
    table = Table(title="machine", title_justify="left", title_style="bold", show_header=False)
    memory = f", {machine.memory_bytes / (1 << 30):.0f} GiB" if machine.memory_bytes else ""
    table.add_row("hardware", f"{machine.cpu}, {machine.cores} cores{memory}")
    table.add_row("system", machine.system)
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    table.add_row("versions", versions)
    told = f"{machine.load[0]} at the start, {load_at_end[0]} at the end"
    if machine.load[0] > machine.cores / 2:
        told = f"[yellow]{told}: others use this machine; trust ratios, not figures[/]"
    table.add_row("load", told)
    table.add_row("took", f"{seconds:.0f} s")
    return table


def aim_table(aims: Sequence[Aim]) -> Table:
    table = plain_table("aims", "what", ("aim", "found", ""))
    table.caption = "medians of all rounds; in brackets the middle half of them"
    for aim in aims:
        colour, word = ("green", "met") if aim.met else ("red", "missed")
        found = f"{spread(aim.found, 2)}{aim.unit}"
        table.add_row(aim.what, aim.wanted, f"[{colour}]{found}[/]", f"[{colour}]{word}[/]")
    return table


def spread(found: Spread, digits: int) -> str:
    low, high = f"{found.low:.{digits}f}", f"{found.high:.{digits}f}"
    return f"{found.median:.{digits}f} ({low} … {high})"
