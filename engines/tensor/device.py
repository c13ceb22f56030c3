"""The device an engine computes on, by its name: the CPU, CUDA, any accelerator, or both.

Owns the choice of device and number format and the device's facts; knows nothing of models."""

import os
from dataclasses import dataclass

import psutil
import torch

from engines.environment import EngineEnvironment
from noidle.errors import ConfigError
from noidle.jobs import EngineName
from tensor_llm.quantization import WeightFormat

_DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16}
CGROUP = "/sys/fs/cgroup"


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """Where weights and cache lie. A hybrid engine has a `second` half: the accelerator."""

    first: torch.device
    second: torch.device | None
    # of dense weights; None: as they are stored
    dtype: torch.dtype | None
    # packed while they load
    format: WeightFormat | None = None
    # for people
    label: str

    @property
    def main(self) -> torch.device:
        """The faster of the two: where training happens."""
        return self.second or self.first

    @property
    def autocast(self) -> torch.dtype | None:
        """Training keeps float32 weights and computes in this."""
        return None if self.main.type == "cpu" or self.dtype is torch.float32 else self.dtype

    @property
    def part_flop(self) -> float:
        """Floating-point operations that take about a quarter of a second."""
        return 1.2e10 * torch.get_num_threads() if self.main.type == "cpu" else 1e13

    def wait(self) -> None:
        """Until what was queued on the device has happened; a time taken before tells nothing."""
        if self.main.type != "cpu":
            torch.accelerator.synchronize(self.main)

    def give_back(self) -> None:
        """What this process has freed, to the other processes on the device."""
        if self.main.type != "cpu":
            torch.accelerator.empty_cache()


def open_device(environment: EngineEnvironment) -> Device:
    """
    Raises:
        ConfigError: the engine's device is not there, or does not compute in the format.
    """
    threads = environment.threads
    engine = environment.engine
    format_ = _format(environment)
    cpu = torch.device("cpu")
    words = f"CPU, {threads} thread{'s' if threads > 1 else ''}"
    if environment.stand_in:
        words = f"stand-in for {engine}: {words}"
    if engine is EngineName.CPU or environment.stand_in:
        second = cpu if engine is EngineName.HYBRID else None
        dtype = None if format_ else _dtype(environment, cpu)
        return Device(first=cpu, second=second, dtype=dtype, format=format_, label=words)
    accelerator = _accelerator(environment)
    dtype, name = _dtype(environment, accelerator), _name(accelerator)
    if engine is EngineName.HYBRID:
        return Device(first=cpu, second=accelerator, dtype=dtype, label=f"{words} + {name}")
    return Device(first=accelerator, second=None, dtype=dtype, label=name)


def free_bytes(device: torch.device) -> int | None:
    """Memory that could still be taken on the device; None where it does not say."""
    if device.type == "cpu":
        return _free_host_bytes()
    if device.type == "cuda":
        free = torch.cuda.mem_get_info(device)[0]
        # what torch keeps but does not use is free to us
        kept = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
        return int(free + kept)
    if device.type == "mps":
        limit = torch.mps.recommended_max_memory()
        return int(limit - torch.mps.driver_allocated_memory())
    return None


def _accelerator(environment: EngineEnvironment) -> torch.device:
    wanted = environment.device
    if environment.engine is EngineName.CUDA:
        if not torch.cuda.is_available():
            raise ConfigError(f"engine = cuda: torch {torch.__version__} finds no CUDA device")
        device = torch.device(wanted or "cuda:0")
    else:
        found = (
            torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
        )
        if found is None:
            raise ConfigError(
                f"engine = {environment.engine}: torch {torch.__version__} finds no accelerator"
            )
        device = torch.device(wanted or f"{found.type}:0")
    if device.type == "cuda":
        torch.cuda.set_device(device)
        # it plans anew for every length of text: 50 ms a token instead of 7, on an H200
        torch.backends.cuda.enable_cudnn_sdp(False)
    return device


def _format(environment: EngineEnvironment) -> WeightFormat | None:
    wanted, engine = environment.dtype, environment.engine
    if wanted is None or wanted in _DTYPES:
        return None
    if engine is EngineName.CPU:
        return WeightFormat(wanted)
    allowed = f"{' or '.join(_DTYPES)} on engine {engine}; only cpu computes with packed weights"
    raise ConfigError(
        f"NOIDLE_DTYPE = {wanted}: allowed is {allowed}",
        variable="NOIDLE_DTYPE",
        value=wanted,
        allowed=allowed,
    )


def _dtype(environment: EngineEnvironment, device: torch.device) -> torch.dtype | None:
    if environment.dtype is not None:
        return _DTYPES[environment.dtype]
    hybrid = environment.engine is EngineName.HYBRID
    if device.type == "cpu" and not hybrid:
        return None
    if device.type not in ("cuda", "xpu"):
        return torch.float32
    # both halves of a hybrid compute in one format; few CPUs are quick in the narrow one
    return torch.float32 if hybrid and not narrow_on_cpu() else torch.bfloat16


def narrow_on_cpu() -> bool:
    """Whether torch multiplies bfloat16 on this processor without a detour."""
    return bool(torch.ops.mkldnn._is_mkldnn_bf16_supported())


def _name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else device.type


def _free_host_bytes() -> int:
    available = int(psutil.virtual_memory().available)
    limit, used = _cgroup("memory.max"), _cgroup("memory.current")
    return available if limit is None or used is None else min(available, max(0, limit - used))


def _cgroup(name: str) -> int | None:
    try:
        with open(os.path.join(CGROUP, name), encoding="ascii") as file:
            text = file.read().strip()
    except OSError:
        return None
    return int(text) if text.isdigit() else None
