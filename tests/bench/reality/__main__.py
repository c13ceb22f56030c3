"""`python -m tests.bench.reality --trace FILE [echo] [engine]`: the parts named, or both.

Owns the order, and that nothing is left behind, however it ends."""

import os
import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from noidle.errors import ConfigError
from ops.commands import output
from routing.simulation.trace import read_trace
from tests.bench.folder import end_cleanly
from tests.bench.machine import load, read_machine
from tests.bench.reality.echo_part import measure_echo
from tests.bench.reality.engine_part import measure_engine
from tests.bench.reality.report import RealityReport, draw
from tests.bench.reality.slices import cut


class Part(StrEnum):
    """What can be compared by itself."""

    ECHO = "echo"  # pools at described rates
    ENGINE = "engine"  # the cpu engine, at the rates that it tells


def bench(
    trace: Annotated[Path, typer.Option(help="Azure LLM inference CSV or Mooncake JSON lines.")],
    parts: Annotated[list[Part] | None, typer.Argument(help="Default both.")] = None,
    seconds: Annotated[float, typer.Option(min=5, help="Length of the slice.")] = 300.0,
    start: Annotated[float, typer.Option(min=0, help="Where it begins in the trace.")] = 0.0,
    runs: Annotated[int, typer.Option(min=2, help="Of each part.")] = 5,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report there too.")
    ] = None,
) -> None:
    """Play a slice of a trace on a real cluster, and compare it with its simulation."""
    # settings of a cluster that is in use here must not change what is measured
    for name in [name for name in os.environ if name.startswith("NOIDLE_")]:
        del os.environ[name]
    try:
        rows = cut(read_trace(trace), start, seconds)
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    began_s, machine = time.monotonic(), read_machine()

    def say(part: Part, text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began_s:6.1f} s  {part}, {text}\n")

    found = []
    for part in parts or list(Part):
        measure = {Part.ECHO: measure_echo, Part.ENGINE: measure_engine}[part]
        found.append(measure(rows, seconds, runs, partial(say, part)))
    report = RealityReport(
        taken=datetime.now(UTC),
        seconds=time.monotonic() - began_s,
        machine=machine,
        load_at_end=load(),
        trace=trace.name,
        slice_s=seconds,
        parts=tuple(found),
    )
    output.draw(*draw(report))
    if json is not None:
        json.write_text(report.model_dump_json(indent=2) + "\n")


if __name__ == "__main__":
    end_cleanly()
    typer.run(bench)
