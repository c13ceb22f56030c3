"""What `noidle up` takes while it does nothing: memory and CPU of each process, no model loaded.

Owns the window; knows nothing of what the processes wait for."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import psutil
from pydantic import BaseModel, ConfigDict

from ops.cluster_file import ClusterFile
from ops.metrics import procfs
from ops.plan import UpOptions
from tests.bench.clusters import cluster

_KIB = 1024


class IdlePlan(BaseModel):
    """How much of it."""

    model_config = ConfigDict(frozen=True)

    # between being up and the window: imports and first looks are over then
    settle_s: float = 8.0
    window_s: float = 25.0


class IdleProcess(BaseModel):
    """One process; shared pages count in full in RSS and by their share in PSS."""

    model_config = ConfigDict(frozen=True)

    name: str
    rss_bytes: int
    # absent where the kernel does not tell
    pss_bytes: int | None
    cpu_percent: float
    threads: int
    # how often it was put on a core; what keeps a laptop awake
    wakeups_per_s: float


class IdleFigures(BaseModel):
    """The processes of `noidle up`, its Flower and its Valkey."""

    model_config = ConfigDict(frozen=True)

    plan: IdlePlan
    processes: tuple[IdleProcess, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    at_s: float
    cpu_s: float
    switches: int


def measure_idle(folder: Path, plan: IdlePlan, say: Callable[[str], None]) -> IdleFigures:
    say("starting noidle up, with Flower and without a model")
    with cluster(folder, UpOptions(), say) as file:
        time.sleep(plan.settle_s)
        found = _processes(file)
        before = {name: _look(process) for name, process in found.items()}
        say(f"watching {len(found)} processes for {plan.window_s:g} s")
        time.sleep(plan.window_s)
        seen = [_seen(name, process, before[name]) for name, process in found.items()]
    return IdleFigures(plan=plan, processes=tuple(seen))


def _processes(file: ClusterFile) -> dict[str, psutil.Process]:
    found = {"supervisor": psutil.Process(file.pid)}
    for name, pid in file.pids.items():
        found[name] = psutil.Process(pid)
        for number, child in enumerate(found[name].children(recursive=True)):
            found[f"{name}: engine" + (f" {number}" if number else "")] = child
    return found


def _look(process: psutil.Process) -> _Look:
    times, at_s = process.cpu_times(), time.monotonic()
    switches = 0
    for thread in Path(f"/proc/{process.pid}/task").glob("*/status"):
        told = procfs.fields(thread, "voluntary_ctxt_switches")
        switches += told.get("voluntary_ctxt_switches", 0)
    return _Look(at_s=at_s, cpu_s=times.user + times.system, switches=switches)


def _seen(name: str, process: psutil.Process, before: _Look) -> IdleProcess:
    now = _look(process)
    elapsed_s = now.at_s - before.at_s
    sizes = procfs.fields(Path(f"/proc/{process.pid}/smaps_rollup"), "Pss:")
    return IdleProcess(
        name=name,
        rss_bytes=process.memory_info().rss,
        pss_bytes=sizes["Pss"] * _KIB if "Pss" in sizes else None,
        cpu_percent=100 * (now.cpu_s - before.cpu_s) / elapsed_s,
        threads=process.num_threads(),
        wakeups_per_s=max(0, now.switches - before.switches) / elapsed_s,
    )
