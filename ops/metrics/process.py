"""Measures one process: CPU, working set, faults, time spent waiting for a core. Rates are
means since the sample before; a process that ended yields None."""

from dataclasses import dataclass
from pathlib import Path

import psutil

from noidle.snapshot import ProcessDetail
from ops.metrics import procfs

_KIB = 1024
# the kernel walks every mapping for this one: milliseconds for a large process
_ROLLUP_EVERY_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class _Rollup:
    at_s: float
    pss_bytes: int | None
    uss_bytes: int | None


class ProcessMeter:
    """One process, sampled by one thread.

    CPU and run-queue wait are sums over its threads, so both can pass 100 %.
    """

    def __init__(self, name: str, pid: int, *, proc: Path = Path("/proc")) -> None:
        self._name = name
        self._pid = pid
        self._folder = proc / str(pid)
        self._process = psutil.Process(pid)
        self._cpu: tuple[float, float] | None = None
        self._waits: tuple[float, dict[str, int]] | None = None
        self._rollup: _Rollup | None = None

    @classmethod
    def of(cls, name: str, pid: int) -> "ProcessMeter | None":
        """None if the process is gone already."""
        try:
            return cls(name, pid)
        except psutil.NoSuchProcess:
            return None

    def sample(self, now_s: float) -> ProcessDetail | None:
        """`now_s`: a monotonic clock. None once the process is gone."""
        try:
            with self._process.oneshot():
                return self._read(now_s)
        except (psutil.NoSuchProcess, psutil.AccessDenied):
            return None

    def _read(self, now_s: float) -> ProcessDetail:
        memory = self._process.memory_info()
        status = procfs.fields(self._folder / "status", "VmHWM")
        peak = status.get("VmHWM")
        rollup = self._sizes(now_s)
        return ProcessDetail(
            name=self._name,
            pid=self._pid,
            cpu_percent=self._cpu_percent(now_s),
            rss_bytes=memory.rss,
            pss_bytes=rollup.pss_bytes,
            uss_bytes=rollup.uss_bytes,
            peak_bytes=peak * _KIB if peak is not None else getattr(memory, "peak_wset", None),
            major_faults=self._major_faults(),
            run_queue_wait_percent=self._run_queue_wait_percent(now_s),
            threads=self._process.num_threads(),
        )

    def _cpu_percent(self, now_s: float) -> float | None:
        times = self._process.cpu_times()
        used = times.user + times.system
        before, self._cpu = self._cpu, (now_s, used)
        if before is None or now_s <= before[0]:
            return None
        return round(max(0.0, 100 * (used - before[1]) / (now_s - before[0])), 1)

    def _sizes(self, now_s: float) -> _Rollup:
        if self._rollup is None or now_s - self._rollup.at_s >= _ROLLUP_EVERY_S:
            sizes = procfs.fields(self._folder / "smaps_rollup")
            own = [sizes[key] for key in ("Private_Clean", "Private_Dirty") if key in sizes]
            self._rollup = _Rollup(
                at_s=now_s,
                pss_bytes=sizes["Pss"] * _KIB if "Pss" in sizes else None,
                uss_bytes=sum(own) * _KIB if own else None,
            )
        return self._rollup

    def _major_faults(self) -> int | None:
        text = procfs.read(self._folder / "stat")
        # the name in brackets may hold spaces; the 12th field is the 10th after it
        after = text.rpartition(")")[2].split() if text else []
        return int(after[9]) if len(after) > 9 else None

    def _run_queue_wait_percent(self, now_s: float) -> float | None:
        """From each thread's schedstat: nanoseconds runnable but not running."""
        waits = {}
        for path in self._folder.glob("task/*/schedstat"):
            parts = (procfs.read(path) or "").split()
            if len(parts) == 3:
                waits[path.parent.name] = int(parts[1])
        before, self._waits = self._waits, (now_s, waits)
        if before is None or now_s <= before[0] or not waits:
            return None
        waited_ns = sum(
            waited - before[1][thread] for thread, waited in waits.items() if thread in before[1]
        )
        return round(max(0.0, waited_ns / 1e7 / (now_s - before[0])), 2)
