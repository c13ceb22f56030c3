"""What this machine has of accelerators: asked of the NVIDIA driver (NVML), and of torch in a
process of its own where there is a sign of any.

Owns the asking; knows nothing of engines."""

import json
import platform
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PROBE_TIMEOUT_S = 120.0
SIGNS = tuple(
    Path("/dev") / name
    # NVIDIA, the same under WSL, AMD, Intel, other compute accelerators
    for name in ("nvidiactl", "nvidia0", "dxg", "kfd", "dri/renderD128", "accel")
)
_ROOT = Path(__file__).resolve().parent.parent


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What was found."""

    # names of NVIDIA devices by NVML; empty where no driver answers, see `nvml_fault`
    nvidia: tuple[str, ...] = ()
    nvml_fault: str | None = None
    # names of the devices torch can use through CUDA
    cuda: tuple[str, ...] = ()
    # type of the accelerator torch would take (cuda, mps, xpu, …) and how many of it
    accelerator: str | None = None
    count: int = 0
    torch: str | None = None
    # CUDA version torch was built for
    cuda_built: str | None = None
    # why torch was not asked, or did not answer
    probe_fault: str | None = None


def inspect_machine(signs: Sequence[Path] = SIGNS) -> Machine:
    """Takes milliseconds where nothing hints at an accelerator, seconds elsewhere."""
    nvidia, nvml_fault = _ask_nvml()
    apple = platform.system() == "Darwin" and platform.machine() == "arm64"
    if not nvidia and not apple and not any(sign.exists() for sign in signs):
        return Machine(nvml_fault=nvml_fault, probe_fault="no device of any driver is there")
    command = [sys.executable, "-m", "engines.probe"]
    try:
        answer = subprocess.run(
            command, cwd=_ROOT, capture_output=True, timeout=PROBE_TIMEOUT_S, check=True
        )
        found = json.loads(answer.stdout)
    except subprocess.CalledProcessError as error:
        said = error.stderr.decode(errors="replace").strip().splitlines()
        return Machine(
            nvidia=nvidia, nvml_fault=nvml_fault, probe_fault=said[-1] if said else str(error)
        )
    except (OSError, subprocess.TimeoutExpired, ValueError) as error:
        return Machine(nvidia=nvidia, nvml_fault=nvml_fault, probe_fault=str(error))
    return Machine(
        nvidia=nvidia,
        nvml_fault=nvml_fault,
        cuda=tuple(found["cuda"]),
        accelerator=found["accelerator"],
        count=found["count"],
        torch=found["torch"],
        cuda_built=found["cuda_built"],
    )


def _ask_nvml() -> tuple[tuple[str, ...], str | None]:
    try:
        import pynvml
    except ImportError:
        return (), "the package nvidia-ml-py is not installed"
    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError as error:
        return (), f"the NVIDIA driver does not answer: {error}"
    try:
        handles = [
            pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())
        ]
        names = tuple(str(pynvml.nvmlDeviceGetName(handle)) for handle in handles)
    except pynvml.NVMLError as error:
        return (), f"the NVIDIA driver lists no device: {error}"
    finally:
        pynvml.nvmlShutdown()
    return names, None if names else "the NVIDIA driver lists no device"
