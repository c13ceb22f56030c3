"""`python -m tests.bench.routing [--traces DIR] [--rows N] [--only PART] [--json FILE]`: all parts,
or the named ones.

Owns the order, and that nothing is left behind, however it ends."""

import sys
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from noidle.errors import ConfigError
from ops.commands import output
from routing.simulation.schedulers import NOIDLE, POLICIES
from tests.bench.folder import end_cleanly, temporary_folder
from tests.bench.machine import load, read_machine
from tests.bench.routing.bars import Bar
from tests.bench.routing.commands import measure_commands
from tests.bench.routing.decision import measure_decisions
from tests.bench.routing.grid import Place, in_order, places
from tests.bench.routing.judged import judge_decision, judge_life, judge_replay, judge_scale
from tests.bench.routing.replays import Replayed, replay
from tests.bench.routing.report import RoutingReport, draw, line
from tests.bench.routing.scale import measure_scale
from tests.bench.routing.traces import absent, find_traces
from tests.bench.routing.workers import Task, run_all

Say = Callable[[str], None]


class Part(StrEnum):
    """What can be measured by itself."""

    RELEASED = "released"  # traces with all jobs at time 0
    ARRIVALS = "arrivals"  # traces at several loads
    TRAINING = "training"  # the same with an endless training behind
    SCALE = "scale"  # a large simulation
    DECISION = "decision"  # one look of the policy
    COMMANDS = "commands"  # what a job costs Redis


REPLAYED = {Part.RELEASED, Part.ARRIVALS, Part.TRAINING}


def bench(
    traces: Annotated[
        Path | None,
        typer.Option(metavar="DIR", envvar="NOIDLE_TRACES", help="The folder of the traces."),
    ] = None,
    rows: Annotated[
        int | None, typer.Option(min=2, help="Only the first rows of each trace.")
    ] = None,
    only: Annotated[
        list[Part] | None, typer.Option(help="Default all; may be given several times.")
    ] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report there too.")
    ] = None,
) -> None:
    """Measure noidle's policy beside plain rules, and what deciding costs."""
    parts = set(only or Part)
    try:
        found = find_traces(traces) if parts & REPLAYED else {}
    except ConfigError as error:
        raise typer.BadParameter(str(error)) from error
    began_s, machine = time.monotonic(), read_machine()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began_s:6.1f} s  {text}\n")

    figures = _measure(parts, found, rows, say)
    report = RoutingReport(
        taken=datetime.now(UTC),
        seconds=time.monotonic() - began_s,
        machine=machine,
        load_at_end=load(),
        rows=rows,
        **figures,
    )
    output.draw(*draw(report))
    if json is not None:
        json.write_text(report.model_dump_json(indent=2) + "\n")


def _measure(
    parts: set[Part], traces: Mapping[str, Path], rows: int | None, say: Say
) -> dict[str, Any]:
    left_out = [f"trace {name} is not there" for name in absent(traces)] if traces else []
    bars: list[Bar] = []
    found: dict[str, Any] = {"left_out": tuple(left_out)}
    # 1. what can be played beside each other
    replays: list[Replayed] = []
    for one in run_all(_tasks(parts, traces, rows), say):
        if isinstance(one, Replayed):
            judged = list(judge_replay(one))
            say(line(one, judged))
            replays.append(one)
        else:
            say(f"{one.jobs:,} jobs on {one.hosts:,} hosts took {one.wall_s:.0f} s")
            found["scale"] = one
    places_ = in_order([one.place for one in replays], list(traces))
    by_place = {one.place: one for one in replays}
    found["replays"] = tuple(by_place[place] for place in places_)
    for one in found["replays"]:
        bars += judge_replay(one)
    if "scale" in found:
        bars += judge_scale(found["scale"])
    # 2. what must have the machine for itself
    if Part.DECISION in parts:
        found["decision"] = measure_decisions(say)
        bars += judge_decision(found["decision"])
    if Part.COMMANDS in parts:
        with temporary_folder() as folder:
            found["commands"] = measure_commands(folder)
        bars += judge_life(found["commands"])
    found["bars"] = tuple(bars)
    return found


def _tasks(parts: set[Part], traces: Mapping[str, Path], rows: int | None) -> Sequence[Task]:
    """The longest first."""
    tasks: list[Task] = []
    if Part.SCALE in parts:
        tasks.append(("a large simulation", measure_scale, ()))
    training = Part.TRAINING in parts
    grid = places(
        traces,
        released=Part.RELEASED in parts,
        arrivals=Part.ARRIVALS in parts or training,
    )
    for place, path in grid:
        given = (place, path, rows, _policies(place, parts), training and place.load is not None)
        tasks.append((place.words, replay, given))
    return tasks


def _policies(place: Place, parts: set[Part]) -> list[str]:
    """Training alone needs no plain rules beside it."""
    plain = place.load is None or Part.ARRIVALS in parts
    return list(POLICIES) if plain else [NOIDLE]


if __name__ == "__main__":
    end_cleanly()
    typer.run(bench)
