"""Measures the host: cores, stall, memory, faults. Rates are means since the sample before, so
the first sample of a meter has none."""

import os
import socket
from pathlib import Path

import psutil

from noidle.snapshot import HostDetail
from ops.metrics import cgroup, procfs

_KIB = 1024
_GROUP_EVERY_S = 10.0


class HostMeter:
    """One host, sampled by one thread.

    Args:
        name: the host's name in the cluster; absent, what the system calls it.
        proc: where the kernel's files are (tests give a folder of their own).
    """

    def __init__(
        self, name: str | None = None, *, proc: Path = Path("/proc"), sys: Path = Path("/sys")
    ) -> None:
        self._name = name or socket.gethostname()
        self._proc = proc
        self._sys = sys
        self._cores = cgroup.cores()
        self._group: cgroup.MemoryGroup | None = None
        self._next_group_s = float("-inf")
        self._cpu: list[tuple[float, float]] | None = None
        self._counters: tuple[float, dict[str, int]] | None = None

    def sample(self, now_s: float) -> HostDetail:
        """`now_s`: a monotonic clock."""
        whole, per_core = self._cpu_percent()
        rates = self._rates(now_s)
        memory = procfs.fields(self._proc / "meminfo", "SwapTotal", "SwapFree", "Zswap")
        total, available = self.memory(now_s)
        return HostDetail(
            host=self._name,
            cores=self._cores,
            cpu_percent=whole,
            cpu_percent_per_core=per_core,
            load=tuple(round(value, 2) for value in os.getloadavg()),
            stall_cpu_percent=self._stall("cpu"),
            stall_memory_percent=self._stall("memory"),
            stall_io_percent=self._stall("io"),
            memory_total_bytes=total,
            memory_available_bytes=available,
            swap_used_bytes=_swap_used_bytes(memory),
            compressed_bytes=self._compressed_bytes(memory),
            major_faults_per_s=rates.get("pgmajfault"),
            context_switches_per_s=rates.get("ctxt"),
        )

    def memory(self, now_s: float) -> tuple[int, int]:
        """Total and available bytes, as far as a cgroup's limit lets this process use them."""
        machine = psutil.virtual_memory()
        # a process without a limit seldom gets one
        if self._group is not None or now_s >= self._next_group_s:
            self._group = cgroup.memory()
            self._next_group_s = now_s + _GROUP_EVERY_S
        group = self._group
        if group is None or group.limit_bytes >= machine.total:
            return machine.total, machine.available
        return group.limit_bytes, min(group.available_bytes, machine.available)

    def memory_stall(self) -> tuple[float | None, float | None]:
        """Percent of the last 10 s in which some, and in which all tasks waited for memory: of
        the cgroup that limits this process at the last sample, else of the host."""
        own = self._group.pressure_file if self._group is not None else None
        file = own or self._proc / "pressure" / "memory"
        return procfs.stall_percent(file, "some"), procfs.stall_percent(file, "full")

    def _stall(self, resource: str) -> float | None:
        return procfs.stall_percent(self._proc / "pressure" / resource)

    def _cpu_percent(self) -> tuple[float | None, tuple[float, ...]]:
        before, self._cpu = self._cpu, _core_times()
        if before is None or len(before) != len(self._cpu):
            return None, ()
        spans = [
            (busy - was_busy, total - was_total)
            for (busy, total), (was_busy, was_total) in zip(self._cpu, before, strict=True)
        ]
        elapsed = sum(total for _, total in spans)
        if elapsed <= 0:
            return None, ()
        whole = 100 * sum(busy for busy, _ in spans) / elapsed
        return round(whole, 1), tuple(
            round(100 * busy / total, 1) if total > 0 else 0.0 for busy, total in spans
        )

    def _rates(self, now_s: float) -> dict[str, float]:
        """Events a second of every counter that both samples have."""
        counters = {
            **procfs.fields(self._proc / "vmstat", "pgmajfault"),
            **procfs.fields(self._proc / "stat", "ctxt"),
        }
        before, self._counters = self._counters, (now_s, counters)
        if before is None or now_s <= before[0]:
            return {}
        return {
            name: max(0.0, round((counters[name] - before[1][name]) / (now_s - before[0]), 1))
            for name in ("pgmajfault", "ctxt")
            if name in counters and name in before[1]
        }

    def _compressed_bytes(self, memory: dict[str, int]) -> int | None:
        """What zram devices and zswap occupy; None on a host that has neither."""
        parts = [
            int(text.split()[2])
            for path in sorted((self._sys / "block").glob("zram*/mm_stat"))
            if (text := procfs.read(path)) and len(text.split()) > 2
        ]
        if "Zswap" in memory:
            parts.append(memory["Zswap"] * _KIB)
        return sum(parts) if parts else None


def _core_times() -> list[tuple[float, float]]:
    """Busy and total seconds of each core."""
    times = []
    for core in psutil.cpu_times(percpu=True):
        values = core._asdict()
        # the kernel counts a guest's time in user time as well
        total = sum(values.values()) - values.get("guest", 0) - values.get("guest_nice", 0)
        idle = values["idle"] + values.get("iowait", 0)
        times.append((total - idle, total))
    return times


def _swap_used_bytes(memory: dict[str, int]) -> int | None:
    if "SwapTotal" in memory and "SwapFree" in memory:
        return (memory["SwapTotal"] - memory["SwapFree"]) * _KIB
    return None
