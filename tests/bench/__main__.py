"""`python -m tests.bench [routed] [engine] [idle] [--json FILE]`: the parts named, or all.

Owns the order, and that nothing is left behind, however it ends."""

import math
import os
import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.commands import output
from tests.bench.engine import EnginePlan, measure_engine
from tests.bench.folder import end_cleanly, temporary_folder
from tests.bench.idle import IdlePlan, measure_idle
from tests.bench.machine import load, read_machine
from tests.bench.report import Report, draw
from tests.bench.routed import RoutedPlan, measure_routed


class Part(StrEnum):
    """What can be measured by itself."""

    ROUTED = "routed"  # what the way to an engine and back costs
    ENGINE = "engine"  # what the cluster costs an engine
    IDLE = "idle"  # what a cluster costs while it does nothing


def bench(
    parts: Annotated[list[Part] | None, typer.Argument(help="Default all.")] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report there too.")
    ] = None,
    rounds: Annotated[
        int | None, typer.Option(min=2, help="Of each comparison; more narrow the spread.")
    ] = None,
    flood: Annotated[int, typer.Option(min=10, help="Jobs at once.")] = 200,
    slots: Annotated[int, typer.Option(min=1, help="Of each pool and worker.")] = 8,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of an engine; default all cores but one.")
    ] = None,
) -> None:
    """Measure noidle side by side with bare Celery, and its engine with and without it."""
    # settings of a cluster that is in use here must not change what is measured
    for name in [name for name in os.environ if name.startswith("NOIDLE_")]:
        del os.environ[name]
    # rounds that were asked for are run, however long they take
    given = {} if rounds is None else {"rounds": rounds, "budget_s": math.inf}
    plans = {
        Part.ROUTED: RoutedPlan(flood=flood, slots=slots, **given),
        Part.ENGINE: EnginePlan(threads=threads, **given),
        Part.IDLE: IdlePlan(),
    }
    began_s, machine = time.monotonic(), read_machine()
    found: dict[str, Any] = {}
    for part in parts or list(Part):
        with temporary_folder() as folder:
            found[part.value] = _measure(part, folder, plans[part])
    report = Report(
        taken=datetime.now(UTC),
        seconds=time.monotonic() - began_s,
        machine=machine,
        load_at_end=load(),
        **found,
    )
    output.draw(*draw(report))
    if json is not None:
        json.write_text(report.model_dump_json(indent=2) + "\n")


def _measure(part: Part, folder: Path, plan: Any) -> Any:
    began_s = time.monotonic()

    def say(text: str) -> None:
        sys.stderr.write(f"{part} {time.monotonic() - began_s:5.1f} s  {text}\n")

    measure = {
        Part.ROUTED: measure_routed,
        Part.ENGINE: measure_engine,
        Part.IDLE: measure_idle,
    }[part]
    return measure(folder, plan, say)


if __name__ == "__main__":
    end_cleanly()
    typer.run(bench)
