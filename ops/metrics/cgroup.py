"""The limits a container or service manager puts on this process: memory and cores, from
cgroup v2 or v1. Knows nothing of what the limits are used for."""

import math
import os
from dataclasses import dataclass
from pathlib import Path

from ops.metrics import procfs

_MOUNT = Path("/sys/fs/cgroup")
# v1 writes "no limit" as the largest multiple of a page
_NO_LIMIT_BYTES = 1 << 60


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryGroup:
    """The tightest memory limit above this process."""

    limit_bytes: int
    # what the limit leaves, counting file cache that the kernel can drop as free
    available_bytes: int
    # where the kernel tells the group's stall; absent under v1
    pressure_file: Path | None


def memory(
    mount: Path = _MOUNT, membership: Path = Path("/proc/self/cgroup")
) -> MemoryGroup | None:
    """None where no limit applies. The tightest is the one that leaves least."""
    groups = [_v2(folder) for folder in _folders(mount, membership, "")]
    groups += [_v1(folder) for folder in _folders(mount / "memory", membership, "memory")]
    limited = [group for group in groups if group is not None]
    return min(limited, key=lambda group: group.available_bytes, default=None)


def cores(mount: Path = _MOUNT, membership: Path = Path("/proc/self/cgroup")) -> int:
    """Cores this process may use: affinity, bounded by the CPU quota (rounded up)."""
    affinity = getattr(os, "sched_getaffinity", None)
    allowed = len(affinity(0)) if affinity else os.cpu_count() or 1
    quotas = [_quota_v2(folder) for folder in _folders(mount, membership, "")]
    quotas += [_quota_v1(folder) for folder in _folders(mount / "cpu", membership, "cpu")]
    return min([allowed, *(max(1, math.ceil(quota)) for quota in quotas if quota is not None)])


def _folders(mount: Path, membership: Path, controller: str) -> list[Path]:
    """This process's group and all above it, innermost first."""
    for line in (procfs.read(membership) or "").splitlines():
        _, controllers, path = line.split(":", 2)
        if controller in controllers.split(","):
            inside = mount / path.lstrip("/")
            above = [inside, *inside.parents]
            return [folder for folder in above if folder == mount or mount in folder.parents]
    return []


def _v2(folder: Path) -> MemoryGroup | None:
    limit = procfs.number(folder / "memory.max")
    used = procfs.number(folder / "memory.current")
    if limit is None or used is None:
        return None
    droppable = procfs.fields(folder / "memory.stat").get("inactive_file", 0)
    return MemoryGroup(
        limit_bytes=limit,
        available_bytes=max(0, limit - used + droppable),
        pressure_file=folder / "memory.pressure",
    )


def _v1(folder: Path) -> MemoryGroup | None:
    limit = procfs.number(folder / "memory.limit_in_bytes")
    used = procfs.number(folder / "memory.usage_in_bytes")
    if limit is None or used is None or limit >= _NO_LIMIT_BYTES:
        return None
    droppable = procfs.fields(folder / "memory.stat").get("total_inactive_file", 0)
    return MemoryGroup(
        limit_bytes=limit,
        available_bytes=max(0, limit - used + droppable),
        pressure_file=None,
    )


def _quota_v2(folder: Path) -> float | None:
    parts = (procfs.read(folder / "cpu.max") or "").split()
    if len(parts) != 2 or not parts[0].isdigit():
        return None
    return int(parts[0]) / int(parts[1])


def _quota_v1(folder: Path) -> float | None:
    quota = procfs.number(folder / "cpu.cfs_quota_us")
    period = procfs.number(folder / "cpu.cfs_period_us")
    if quota is None or period is None or quota <= 0:
        return None
    return quota / period
