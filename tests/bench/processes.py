"""Processes that end with the bench, however it ends. Knows nothing of what they do."""

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil

from ops.child import Child, ChildSpec

ROOT = Path(__file__).resolve().parents[2]
_END_S = 15.0


@contextmanager
def celery_worker(folder: Path, url: str, queue: str, *options: str) -> Iterator[None]:
    """A worker of tests.bench.celery_side for one queue; the kernel ends it with this process."""
    command = [
        *(sys.executable, "-m", "celery", "-A", "tests.bench.celery_side:app", "worker"),
        *("--queues", queue, "--hostname", f"{queue}@bench", "--pool", "threads"),
        *("--without-mingle", "--without-gossip", "--loglevel", "WARNING", *options),
    ]
    variables = {**os.environ, "PYTHONPATH": str(ROOT), "BENCH_URL": url}
    spec = ChildSpec(name=queue, command=tuple(command), environment=variables)
    with running(spec, folder):
        yield


@contextmanager
def running(spec: ChildSpec, folder: Path) -> Iterator[None]:
    """Any process, with its log in the folder."""
    child = Child(spec, folder=folder, log=folder / f"{spec.name}.log")
    child.start(time.monotonic())
    try:
        yield
    finally:
        child.ask_to_end()
        end_s = time.monotonic() + _END_S
        while not child.ended() and time.monotonic() < end_s:
            time.sleep(0.05)
        child.kill()


def cpu_s(pid: int | None = None) -> float:
    """CPU time that a process, by default this one, and all that came of it have used."""
    first = psutil.Process(pid)
    return sum(map(_used_s, [first, *first.children(recursive=True)]))


def _used_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.Error:
        return 0.0
    return float(times.user + times.system)
