"""What the figures were taken on: without it they say little. Knows nothing of the figures."""

import os
import platform
import subprocess
from importlib import metadata
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from ops.metrics import cgroup, procfs
from ops.valkey import find_binary

_PACKAGES = ("celery", "kombu", "redis", "pydantic", "torch", "noidle")


class Machine(BaseModel):
    """Read once, before anything is started."""

    model_config = ConfigDict(frozen=True)

    cpu: str
    cores: int
    memory_bytes: int | None
    system: str
    # means of 1, 5 and 15 minutes; what others ran here disturbs every figure
    load: tuple[float, ...]
    versions: dict[str, str]


def read_machine() -> Machine:
    memory = procfs.fields(Path("/proc/meminfo"), "MemTotal").get("MemTotal")
    return Machine(
        cpu=_cpu(),
        cores=cgroup.cores(),
        memory_bytes=memory * 1024 if memory else None,
        system=f"{platform.system()} {platform.release()}",
        load=load(),
        versions={"python": platform.python_version(), **_packages(), "valkey": _valkey()},
    )


def load() -> tuple[float, ...]:
    return tuple(round(one, 2) for one in os.getloadavg())


def _cpu() -> str:
    for line in (procfs.read(Path("/proc/cpuinfo")) or "").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def _packages() -> dict[str, str]:
    found = {}
    for name in _PACKAGES:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def _valkey() -> str:
    said = subprocess.run([find_binary(), "--version"], capture_output=True, text=True, check=True)
    words = (word.removeprefix("v=") for word in said.stdout.split() if word.startswith("v="))
    return next(words, "unknown")
