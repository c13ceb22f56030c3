"""Looks at the cluster while the demo runs: idle shares, working sets. Owns the figures that
only a look from time to time can give."""

import threading
from collections import defaultdict
from collections.abc import Callable
from types import TracebackType
from typing import Self

import psutil

from noidle.errors import ClusterUnavailable
from noidle.snapshot import PoolDetail

_EVERY_S = 1.0


class Watch:
    """From `with` to its end, one look a second.

    Args:
        details: reads what the pools publish for people.
    """

    def __init__(self, details: Callable[[], list[PoolDetail]]) -> None:
        self._details = details
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-watch", daemon=True)
        self._busy: dict[str, list[float]] = defaultdict(list)
        self._device: dict[str, list[float]] = defaultdict(list)
        # by process; a process that was restarted counts once more
        self._rss: dict[tuple[str, int], int] = {}
        self._at_once = 0
        self._idle_percent: float | None = None

    def __enter__(self) -> Self:
        self._before = psutil.cpu_times()
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self._stop.set()
        self._thread.join()
        self._idle_percent = _idle_percent(self._before, psutil.cpu_times())

    @property
    def cpu_idle_percent(self) -> float | None:
        """Of all cores of this host, the demo's whole time."""
        return self._idle_percent

    @property
    def device_idle_percent(self) -> dict[str, float]:
        """By accelerator, as its driver tells; empty where there is none."""
        return {name: 100 - _mean(seen) for name, seen in self._device.items()}

    @property
    def engine_busy_percent(self) -> dict[str, float]:
        """By pool: share of time in which its engine computed."""
        return {name: _mean(seen) for name, seen in self._busy.items()}

    @property
    def peak_bytes(self) -> dict[str, int]:
        """By pool: the largest resident set of its worker and engine, summed."""
        sums: dict[str, int] = defaultdict(int)
        for (pool, _), size in self._rss.items():
            sums[pool] += size
        return dict(sums)

    @property
    def peak_at_once_bytes(self) -> int | None:
        """The largest sum over all pools that one look saw."""
        return self._at_once or None

    def _run(self) -> None:
        while not self._stop.wait(_EVERY_S):
            try:
                self._look(self._details())
            except ClusterUnavailable:
                continue

    def _look(self, details: list[PoolDetail]) -> None:
        now = 0
        for detail in details:
            pool = detail.snapshot.pool
            if detail.engine_busy_percent is not None:
                self._busy[pool].append(detail.engine_busy_percent)
            for process in detail.processes:
                now += process.rss_bytes or 0
                size = process.peak_bytes or process.rss_bytes or 0
                key = (pool, process.pid)
                self._rss[key] = max(self._rss.get(key, 0), size)
            for device in detail.devices:
                if device.utilisation_percent is not None:
                    self._device[device.device].append(device.utilisation_percent)
        self._at_once = max(self._at_once, now)


def _mean(values: list[float]) -> float:
    return sum(values) / len(values)


def _idle_percent(before: tuple[float, ...], after: tuple[float, ...]) -> float | None:
    spent = {
        name: getattr(after, name) - getattr(before, name)
        for name in after._fields  # type: ignore[attr-defined]  # a named tuple, by platform
        # contained in user and nice already
        if name not in ("guest", "guest_nice")
    }
    whole = sum(spent.values())
    return 100 * (spent["idle"] + spent.get("iowait", 0.0)) / whole if whole > 0 else None
