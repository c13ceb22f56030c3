"""Where every byte of a model lies: what a person may ask, and the answer in a table and as JSON
data. How it is counted is tensor_llm.memory_report's matter."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.table import Table

from noidle.errors import ConfigError
from ops.models.tables import size
from ops.run.opening import WeightType

if TYPE_CHECKING:
    import torch

    from tensor_llm.memory_report import MemoryReport

# tokens of a prompt that are read in one step
_CHUNK = 256


def count_memory(
    folder: Path,
    *,
    layers: int,
    kv_tokens: int,
    dtype: WeightType | None,
    device: str,
    host_layers: int | None,
) -> "MemoryReport":
    """
    Args:
        layers: of the model.
        dtype: absent: as stored.
        device: need not be on this host.
        host_layers: layers that stay on the CPU; absent: none is split off.

    Raises:
        ConfigError: there is no such kind of device, or the model has not so many layers.
        CheckpointError: the folder holds no usable model.
    """
    import torch

    from tensor_llm.memory_report import memory_report
    from tensor_llm.quantization import WeightFormat
    from tensor_llm.split import LayerSplit

    place, split = _device(device), None
    if host_layers is not None:
        if host_layers > layers:
            raise ConfigError.of(
                "--host-layers", str(host_layers), f"0 to {layers}, the model's layers"
            )
        split = LayerSplit(first=torch.device("cpu"), second=place, layer=host_layers)
    packed = dtype is not None and dtype.packed
    return memory_report(
        folder,
        kv_tokens=kv_tokens,
        chunk=_CHUNK,
        dtype=None if dtype is None or packed else getattr(torch, dtype.value),
        format=WeightFormat(dtype.value) if dtype is not None and packed else None,
        split=split,
        device=device,
    )


def _device(name: str) -> "torch.device":
    import torch

    try:
        return torch.device(name)
    except RuntimeError:
        raise ConfigError.of("--device", name, "as torch names it: cpu, cuda:0, mps, …") from None


def memory_table(report: "MemoryReport") -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("device")
    table.add_column("part")
    table.add_column("bytes", justify="right")
    table.add_column("", justify="right")
    for device in report.devices:
        parts = {
            **{f"weights: {part}": of for part, of in device.weight_bytes.items()},
            "keys and values": device.kv_bytes,
            "activations": device.activation_bytes,
            "in all": device.bytes,
        }
        for part, of in parts.items():
            table.add_row(device.device, part, f"{of:,}", size(of))
        if device.mapped_bytes:
            # the system may drop them and read them again, and processes share them
            mapped = f"{device.mapped_bytes:,}"
            table.add_row("", "of these mapped from files", mapped, size(device.mapped_bytes))
    for words, of in (
        ("host to device in a decode step", report.host_to_device_bytes),
        ("device to host in a decode step", report.device_to_host_bytes),
    ):
        table.add_row("", words, f"{of:,}", size(of))
    return table


def memory_fields(report: "MemoryReport") -> dict[str, Any]:
    fields = dataclasses.asdict(report)
    for device, written in zip(report.devices, fields["devices"], strict=True):
        written["bytes"] = device.bytes
    return fields
