"""The sampler that a pool's reporter asks: one look at host, own processes and own device.
Joins the meters; knows nothing of snapshots or Redis."""

import os
import time
from collections.abc import Callable

from noidle.snapshot import DeviceDetail, HostDetail, Pressure, ProcessDetail
from ops.metrics.device import DeviceMeter
from ops.metrics.host import HostMeter
from ops.metrics.pressure import MemoryState, next_pressure
from ops.metrics.process import ProcessMeter
from workers.reporter import Sample

# a pool reports at each change too; rates over shorter spans are noise
_LEAST_SPAN_S = 0.5


class HostSampler:
    """Keeps the sampler's promise of workers.reporter. One thread calls it.

    A sample costs 1.3 ms of CPU (7 threads, measured on two cores), and 1.1 ms more with a device
    (H200).

    Args:
        host: the host's name in the cluster.
        device: the pool's own, as torch names it (`cuda:0`); absent, the engine uses cores only.
        visible: the value of CUDA_VISIBLE_DEVICES.
    """

    def __init__(
        self,
        host: str,
        device: str | None = None,
        *,
        visible: str | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._host = HostMeter(host)
        self._device = device
        self._devices = DeviceMeter(visible) if device else None
        self._worker = ProcessMeter("worker", os.getpid())
        self._engine: tuple[int, ProcessMeter] | None = None
        self._clock = clock
        self._pressure = Pressure.OK
        self._last: tuple[float, int | None, Sample] | None = None

    def sample(self, engine_pid: int | None) -> Sample:
        now_s = self._clock()
        if self._last is not None:
            at_s, pid, sample = self._last
            if pid == engine_pid and now_s - at_s < _LEAST_SPAN_S:
                return sample
        sample = self._look(engine_pid, now_s)
        self._last = (now_s, engine_pid, sample)
        return sample

    def _look(self, engine_pid: int | None, now_s: float) -> Sample:
        host = self._host.sample(now_s)
        worker, engine = self._worker.sample(now_s), self._engine_sample(engine_pid, now_s)
        device = self._own_device(now_s)
        self._pressure = next_pressure(self._pressure, self._memory_state(host, device))
        return Sample(
            pressure=self._pressure,
            host=host,
            memory_free_bytes=self._free_bytes(host, device),
            engine_busy_percent=_busy_percent(engine, device),
            processes=tuple(each for each in (worker, engine) if each is not None),
            devices=(device,) if device is not None else (),
        )

    def _engine_sample(self, pid: int | None, now_s: float) -> ProcessDetail | None:
        if pid is None:
            self._engine = None
            return None
        if self._engine is None or self._engine[0] != pid:
            meter = ProcessMeter.of("engine", pid)
            if meter is None:
                return None
            self._engine = (pid, meter)
        return self._engine[1].sample(now_s)

    def _own_device(self, now_s: float) -> DeviceDetail | None:
        found = self._devices.sample(now_s) if self._devices is not None else ()
        return next((each for each in found if each.device == self._device), None)

    def _memory_state(self, host: HostDetail, device: DeviceDetail | None) -> MemoryState:
        total, available = host.memory_total_bytes, host.memory_available_bytes
        some, full = self._host.memory_stall()
        return MemoryState(
            available_share=available / total if total and available is not None else None,
            stall_some_percent=some,
            stall_full_percent=full,
            device_free_bytes=device.memory_free_bytes if device is not None else None,
        )

    def _free_bytes(self, host: HostDetail, device: DeviceDetail | None) -> int | None:
        """What a new job may use. An accelerator that NVML does not know tells nothing, except
        Apple's, whose memory is the host's."""
        if self._device is None or self._device.startswith("mps"):
            return host.memory_available_bytes
        return device.memory_free_bytes if device is not None else None


def _busy_percent(engine: ProcessDetail | None, device: DeviceDetail | None) -> float | None:
    """The device's utilisation, or how far the engine fills at least one core."""
    if device is not None:
        return device.utilisation_percent
    if engine is None or engine.cpu_percent is None:
        return None
    return min(100.0, engine.cpu_percent)
