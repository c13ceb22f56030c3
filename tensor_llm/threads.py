"""How many threads compute here, and on which cores: as a quick measurement says.

Owns the measurement and where its result is kept. Knows nothing of models."""

import hashlib
import json
import logging
import os
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import torch

from tensor_llm.kernels.builder import default_cache
from tensor_llm.kernels.library import Kernels, best_kernels

log = logging.getLogger(__name__)

GAIN = 1.05
"""More threads, or cores kept to, must be so much faster to be taken."""
_CPUS = Path("/sys/devices/system/cpu")
_TASKS = Path("/proc/self/task")
_ROUNDS = 5
# read as decoding reads weights; multiplied as a prompt is
_READ_BYTES, _ROWS, _WIDTH = 64 << 20, 128, 1024


def use_threads(most: int, folder: Path | None = None) -> int:
    """Sets torch's number of threads, up to `most`, and keeps this process off units that cores
    share, where that measures faster; the number. The first time on a machine it takes some
    tenths of a second. While others use the machine nothing is measured: `most` it is."""
    folder = folder or default_cache()
    kernels = best_kernels()
    choice = _remembered(most, folder)
    if choice is None and kernels is not None and most > 1 and not _busy():
        choice = _measured(most, kernels)
        _remember(most, choice, folder)
    threads, cpus = choice or (most, [])
    torch.set_num_threads(threads)
    if cpus:
        _keep_to(cpus)
    log.info("%d threads", threads, extra={"event": "threads", "cpus": cpus})
    return threads


def fewest(seconds: Mapping[int, float]) -> int:
    """Of numbers of threads and how long each takes the least beyond which little is gained."""
    best = min(seconds)
    for threads in sorted(seconds):
        if seconds[threads] * GAIN < seconds[best]:
            best = threads
    return best


def apart(cpus: Sequence[int], root: Path = _CPUS) -> list[int]:
    """Of the given logical CPUs one for each core, the first."""
    cores: dict[str, int] = {}
    for cpu in cpus:
        try:
            core = (root / f"cpu{cpu}/topology/thread_siblings_list").read_text()
        except OSError:
            core = str(cpu)
        cores.setdefault(core, cpu)
    return list(cores.values())


def _numbers(most: int) -> list[int]:
    """1, 2, 3, 4, 6, 8, 12, … and `most`."""
    found = {power * part // 2 for power in (1, 2, 4, 8, 16, 32, 64, 128) for part in (2, 3)}
    return sorted({number for number in found if number < most} | {most})


def _measured(most: int, kernels: Kernels) -> tuple[int, list[int]]:
    memory = torch.ones(_READ_BYTES, dtype=torch.uint8)
    weight = torch.zeros(_WIDTH, _WIDTH, dtype=torch.bfloat16)
    x = torch.zeros(_ROWS, _WIDTH)

    def work() -> None:
        kernels.read(memory)
        for _ in range(4):
            kernels.linear(x, weight)

    before = torch.get_num_threads()
    try:
        threads = fewest(_timed(_numbers(most), torch.set_num_threads, work))
        torch.set_num_threads(threads)
        return threads, _placed(threads, work)
    finally:
        torch.set_num_threads(before)


def _placed(threads: int, work: Callable[[], None]) -> list[int]:
    """CPUs to keep to; empty where it does not pay to choose any."""
    mine = _allowed()
    cpus = apart(mine)
    if not _TASKS.exists() or len(cpus) == len(mine) or len(cpus) < threads:
        return []
    ways = {0: mine, 1: cpus}
    try:
        seconds = _timed(list(ways), lambda way: _keep_to(ways[way]), work)
    finally:
        _keep_to(mine)
    return cpus if fewest(seconds) == 1 else []


def _timed(
    ways: Sequence[int], choose: Callable[[int], None], work: Callable[[], None]
) -> dict[int, float]:
    """The least seconds of each way, taken in turn: what disturbs, disturbs all."""
    seconds = dict.fromkeys(ways, float("inf"))
    for _ in range(_ROUNDS):
        for way in ways:
            choose(way)
            # threads start and find their cores
            work()
            began_s = time.perf_counter()
            work()
            seconds[way] = min(seconds[way], time.perf_counter() - began_s)
    return seconds


def _keep_to(cpus: Sequence[int]) -> None:
    """All threads of this process, those to come too."""
    for task in _TASKS.iterdir():
        try:
            os.sched_setaffinity(int(task.name), cpus)
        except OSError:
            # it has ended meanwhile
            continue


def _busy() -> bool:
    return os.getloadavg()[0] > 0.5 * len(_allowed())


def _remembered(most: int, folder: Path) -> tuple[int, list[int]] | None:
    try:
        found = json.loads(_file(most, folder).read_text())
        threads, cpus = int(found["threads"]), [int(cpu) for cpu in found["cpus"]]
    except (OSError, ValueError, TypeError, KeyError):
        return None
    known = set(_allowed())
    return (threads, cpus) if 1 <= threads <= most and known.issuperset(cpus) else None


def _remember(most: int, choice: tuple[int, list[int]], folder: Path) -> None:
    path = _file(most, folder)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        draft = path.with_suffix(f".{os.getpid()}")
        draft.write_text(json.dumps({"threads": choice[0], "cpus": choice[1]}))
        draft.replace(path)
    except OSError as error:
        log.info("%s cannot be written: %s", path, error, extra={"event": "threads-not-kept"})


def _file(most: int, folder: Path) -> Path:
    """Another machine, or another share of its CPUs, is measured anew."""
    facts = (most, _allowed(), os.cpu_count(), platform.processor(), platform.machine())
    return folder / f"threads-{hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}.json"


def _allowed() -> list[int]:
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))
