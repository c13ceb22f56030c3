"""`python -m tests.bench.cpu [speed] [waiting] [memory] [--json FILE]`: the parts named, or all.

Owns the order, and that nothing is left behind, however it ends."""

import importlib.util
import os
import subprocess
import sys
import time
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import typer

from ops.commands import output
from ops.metrics import cgroup
from tests.bench.cpu.memory import MemoryFigures
from tests.bench.cpu.report import CpuReport, draw
from tests.bench.cpu.shape import Format
from tests.bench.cpu.sides import SIDES
from tests.bench.cpu.speed import LLAMA, TRANSFORMERS, measure_speed
from tests.bench.cpu.waiting import WaitingFigures
from tests.bench.folder import end_cleanly, temporary_folder
from tests.bench.machine import load, read_machine
from tests.bench.processes import ROOT

_NEEDS = {LLAMA: ("llama_cpp", "gguf"), TRANSFORMERS: ("transformers",)}


class Part(StrEnum):
    """What can be measured by itself."""

    SPEED = "speed"  # beside llama.cpp and transformers
    WAITING = "waiting"  # for a first token beside a long prompt
    MEMORY = "memory"  # at most, and after many jobs


def bench(
    parts: Annotated[list[Part] | None, typer.Argument(help="Default all.")] = None,
    json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write the report there too.")
    ] = None,
    rounds: Annotated[
        int, typer.Option(min=2, help="Of each comparison; more narrow the spread.")
    ] = 5,
    threads: Annotated[
        int | None, typer.Option(min=1, help="Of every side; default all cores.")
    ] = None,
    alone: Annotated[bool, typer.Option("--alone", help="Measure noidle without others.")] = False,
) -> None:
    """Measure noidle's cpu engine side by side with llama.cpp and transformers."""
    sides = ["noidle"] if alone else list(SIDES)
    missing = [name for side in sides for name in _NEEDS.get(side, ()) if not _is_here(name)]
    if missing:
        raise typer.BadParameter(
            f"{', '.join(missing)}: not installed. `make bench-cpu` installs them, or "
            "pip install -c constraints.txt -e '.[cluster,bench]'; --alone goes without"
        )
    threads = threads or cgroup.cores()
    began_s, machine = time.monotonic(), read_machine()

    def say(text: str) -> None:
        sys.stderr.write(f"{time.monotonic() - began_s:5.1f} s  {text}\n")

    found: dict[str, Any] = {}
    with temporary_folder() as folder:
        say("writes the model's files")
        _run("shape", folder)
        if LLAMA in sides and Part.SPEED in (parts or list(Part)):
            _run("gguf_file", folder)
        for part in parts or list(Part):
            found |= _measure(part, folder, threads, rounds, sides, say)
    report = CpuReport(
        taken=datetime.now(UTC),
        seconds=time.monotonic() - began_s,
        machine=machine,
        load_at_end=load(),
        **found,
    )
    output.draw(*draw(report))
    if json is not None:
        json.write_text(report.model_dump_json(indent=2) + "\n")


def _measure(
    part: Part, folder: Path, threads: int, rounds: int, sides: list[str], say: Any
) -> dict[str, Any]:
    if part is Part.SPEED:
        return {"speed": measure_speed(folder, threads, rounds, sides, say)}
    if part is Part.WAITING:
        say("a short prompt beside a long one")
        told = _run("waiting", folder, threads, Format.INT8)
        return {"waiting": WaitingFigures.model_validate_json(told)}
    memory = []
    for format_ in Format:
        say(f"memory with {format_}")
        told = _run("memory", folder, threads, format_)
        memory.append(MemoryFigures.model_validate_json(told))
    return {"memory": tuple(memory)}


def _run(module: str, *words: object) -> str:
    command = [sys.executable, "-m", f"tests.bench.cpu.{module}", *map(str, words)]
    return subprocess.run(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True, env=_environment()
    ).stdout


def _environment() -> dict[str, str]:
    """Settings of a cluster that is in use here must not change what is measured."""
    return {name: value for name, value in os.environ.items() if not name.startswith("NOIDLE_")}


def _is_here(name: str) -> bool:
    return importlib.util.find_spec(name) is not None


if __name__ == "__main__":
    end_cleanly()
    typer.run(bench)
