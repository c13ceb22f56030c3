"""Where every byte of a model lies, in a table and as JSON data. How it is counted is
tensor_llm.memory_report's matter."""

import dataclasses
from typing import TYPE_CHECKING, Any

from rich.table import Table

from ops.models.tables import size

if TYPE_CHECKING:
    from tensor_llm.memory_report import MemoryReport


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
