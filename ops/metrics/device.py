"""Measures NVIDIA devices through their management library (NVML), which needs no CUDA context
and works before or after any fork. What a card or driver does not tell is absent."""

import logging
from collections.abc import Callable
from typing import Any, TypeVar

from noidle.snapshot import DeviceDetail

_LOG = logging.getLogger(__name__)
_KIB = 1024
# NVML counts bus traffic for 20 ms while the caller waits
_PCIE_EVERY_S = 10.0

T = TypeVar("T")


class DeviceMeter:
    """All devices NVML lists on this host; none where there is no driver.

    `missing` says in words why there are none.

    Args:
        visible: the value of CUDA_VISIBLE_DEVICES, so that `cuda:0` here is the card that an
            engine calls so; absent, every card in the order of the bus.
    """

    def __init__(self, visible: str | None = None) -> None:
        self._nvml: Any = None
        self._visible = visible
        self._pcie_read: dict[str, tuple[float, float | None, float | None]] = {}
        self.missing: str | None = None
        try:
            import pynvml

            pynvml.nvmlInit()
            self._nvml = pynvml
        except ImportError:
            self.missing = "the package nvidia-ml-py is not installed"
        except pynvml.NVMLError as error:
            self.missing = f"NVML does not start: {error}"

    def sample(self, now_s: float) -> tuple[DeviceDetail, ...]:
        """`now_s`: a monotonic clock."""
        return tuple(
            self._device(f"cuda:{index}", handle, now_s)
            for index, handle in enumerate(self._handles())
        )

    def versions(self) -> dict[str, str]:
        """The driver's and the newest CUDA version it serves."""
        if self._nvml is None:
            return {}
        driver = self._ask(self._nvml.nvmlSystemGetDriverVersion)
        cuda = self._ask(self._nvml.nvmlSystemGetCudaDriverVersion)
        found = {"driver": driver, "cuda": f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else None}
        return {name: value for name, value in found.items() if value}

    def _handles(self) -> list[Any]:
        if self._nvml is None:
            return []
        if self._visible is None:
            names = [str(index) for index in range(self._ask(self._nvml.nvmlDeviceGetCount) or 0)]
        else:
            names = [name.strip() for name in self._visible.split(",") if name.strip()]
        return [handle for name in names if (handle := self._handle(name)) is not None]

    def _handle(self, name: str) -> Any:
        if name.isdigit():
            return self._ask(self._nvml.nvmlDeviceGetHandleByIndex, int(name))
        return self._ask(self._nvml.nvmlDeviceGetHandleByUUID, name)

    def _device(self, name: str, handle: Any, now_s: float) -> DeviceDetail:
        nvml, ask = self._nvml, self._ask
        memory = ask(nvml.nvmlDeviceGetMemoryInfo, handle)
        utilisation = ask(nvml.nvmlDeviceGetUtilizationRates, handle)
        power_mw = ask(nvml.nvmlDeviceGetPowerUsage, handle)
        received, sent = self._pcie(name, handle, now_s)
        return DeviceDetail(
            device=name,
            name=ask(nvml.nvmlDeviceGetName, handle),
            utilisation_percent=utilisation.gpu if utilisation else None,
            memory_total_bytes=memory.total if memory else None,
            memory_used_bytes=memory.used if memory else None,
            memory_free_bytes=memory.free if memory else None,
            memory_by_pid=self._memory_by_pid(handle),
            power_w=power_mw / 1000 if power_mw is not None else None,
            temperature_c=ask(nvml.nvmlDeviceGetTemperature, handle, nvml.NVML_TEMPERATURE_GPU),
            clock_mhz=ask(nvml.nvmlDeviceGetClockInfo, handle, nvml.NVML_CLOCK_SM),
            throttle_reasons=self._throttle_reasons(handle),
            pcie_rx_bytes_per_s=received,
            pcie_tx_bytes_per_s=sent,
            ecc_errors=ask(
                nvml.nvmlDeviceGetTotalEccErrors,
                handle,
                nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
                nvml.NVML_VOLATILE_ECC,
            ),
            mig=self._mig(handle),
        )

    def _memory_by_pid(self, handle: Any) -> dict[int, int]:
        processes = self._ask(self._nvml.nvmlDeviceGetComputeRunningProcesses, handle) or []
        return {each.pid: each.usedGpuMemory for each in processes if each.usedGpuMemory}

    def _throttle_reasons(self, handle: Any) -> tuple[str, ...] | None:
        bits = self._ask(self._nvml.nvmlDeviceGetCurrentClocksEventReasons, handle)
        if bits is None:
            return None
        prefix = "nvmlClocksEventReason"
        names = [name for name in dir(self._nvml) if name.startswith(prefix)]
        names = [name for name in names if name != f"{prefix}All"]
        return tuple(
            name.removeprefix(prefix)
            for name in names
            if isinstance(bit := getattr(self._nvml, name), int) and bit and bits & bit == bit
        )

    def _pcie(self, name: str, handle: Any, now_s: float) -> tuple[float | None, float | None]:
        """Bytes a second received and sent, measured at a low rate."""
        at_s, received, sent = self._pcie_read.get(name, (float("-inf"), None, None))
        if now_s - at_s >= _PCIE_EVERY_S:
            received = self._traffic(handle, self._nvml.NVML_PCIE_UTIL_RX_BYTES)
            sent = self._traffic(handle, self._nvml.NVML_PCIE_UTIL_TX_BYTES)
            self._pcie_read[name] = now_s, received, sent
        return received, sent

    def _traffic(self, handle: Any, direction: int) -> float | None:
        kib_per_s = self._ask(self._nvml.nvmlDeviceGetPcieThroughput, handle, direction)
        return kib_per_s * _KIB if kib_per_s is not None else None

    def _mig(self, handle: Any) -> str | None:
        modes = self._ask(self._nvml.nvmlDeviceGetMigMode, handle)
        if modes is None:
            return None
        return "enabled" if modes[0] == self._nvml.NVML_DEVICE_MIG_ENABLE else "disabled"

    def _ask(self, call: Callable[..., T], *args: object) -> T | None:
        """One figure, or None: cards differ in what they tell, and a card can fall off the bus."""
        try:
            return call(*args)
        except self._nvml.NVMLError as error:
            _LOG.debug("NVML does not tell %s: %s", getattr(call, "__name__", call), error)
            return None


def device_bytes(visible: str | None) -> dict[str, int]:
    """Total memory of every device NVML lists, by the name torch gives it."""
    meter = DeviceMeter(visible)
    return {
        device.device: device.memory_total_bytes
        for device in meter.sample(0.0)
        if device.memory_total_bytes
    }
