"""Where every byte of a model lies once it is loaded, and how many bytes cross between host and
device in a step: counted from its files, before it is loaded. Knows nothing of torch's
allocator."""

from dataclasses import dataclass
from pathlib import Path

import torch

from tensor_llm.quantization import WeightFormat
from tensor_llm.split import LayerSplit


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What lies on one device."""

    device: str
    # by part: embedding, attention, mlp, norms, head
    weight_bytes: dict[str, int]
    kv_bytes: int
    # at the widest point of a step that reads a chunk
    activation_bytes: int

    @property
    def bytes(self) -> int:
        return sum(self.weight_bytes.values()) + self.kv_bytes + self.activation_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryReport:
    devices: tuple[DeviceMemory, ...]
    # a decode step of one sequence
    host_to_device_bytes: int
    device_to_host_bytes: int


def memory_report(
    folder: Path,
    *,
    kv_tokens: int,
    chunk: int,
    dtype: torch.dtype | None = None,
    format: WeightFormat | None = None,  # noqa: A002 -- the field's word
    split: LayerSplit | None = None,
    device: str = "cpu",
) -> MemoryReport:
    """`dtype` None: as stored; `format`: packed on load.

    Raises:
        CheckpointError: the folder holds no usable model.
    """
    raise NotImplementedError
