"""Where every byte of a model lies once it is loaded, and how many bytes cross between host and
device in a step: counted from its files, before it is loaded.

Owns the count, which follows what `assembly` does. Knows nothing of torch's allocator."""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch

from tensor_llm.config import ModelConfig
from tensor_llm.families.directory import Source, read_directory
from tensor_llm.parts import head_weight, packed_format, part_of, tensor_shapes
from tensor_llm.quantization import WeightFormat, packed_names, packed_shapes
from tensor_llm.split import LayerSplit
from tensor_llm.weights import FLOATS

# what a step is told of each token, and tells of it: its id, position and row; the chosen token
# and its log-probability
_STEP_IN_BYTES, _STEP_OUT_BYTES = 3 * 8, 8 + 4


@dataclass(frozen=True, slots=True, kw_only=True)
class DeviceMemory:
    """What lies on one device."""

    device: str
    # by part: embedding, attention, mlp, norms, head
    weight_bytes: dict[str, int]
    # of these: pages of the model's files, which processes share and the system may let go
    mapped_bytes: int
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
    """`dtype`, `format`: as for `load_folder`. `kv_tokens` are held by the cache over all
    sequences; `chunk` tokens of a prompt are read at once.

    Raises:
        CheckpointError: the folder holds no usable model.
    """
    count = _Count(read_directory(folder), dtype, format, split, torch.device(device))
    devices = count.devices(kv_tokens, chunk)
    into, out = count.crossing()
    return MemoryReport(devices=devices, host_to_device_bytes=into, device_to_host_bytes=out)


@dataclass(frozen=True, slots=True)
class _Count:
    source: Source
    dtype: torch.dtype | None
    format: WeightFormat | None
    split: LayerSplit | None
    device: torch.device

    @property
    def config(self) -> ModelConfig:
        return self.source.config

    @property
    def computed(self) -> torch.dtype:
        """The type of activations: that of the last norm."""
        return self._plain_dtype("norm.weight", self._device_of("norm.weight"))

    def devices(self, kv_tokens: int, chunk: int) -> tuple[DeviceMemory, ...]:
        weights: dict[torch.device, dict[str, int]] = defaultdict(lambda: defaultdict(int))
        mapped: dict[torch.device, int] = defaultdict(int)
        for device, part, size, from_file in self._weights():
            weights[device][part] += size
            mapped[device] += size * from_file
        return tuple(
            DeviceMemory(
                device=str(device),
                weight_bytes=dict(weights[device]),
                mapped_bytes=mapped[device],
                kv_bytes=kv_tokens * self._kv_token_bytes(device),
                activation_bytes=self._activation_bytes(device, chunk),
            )
            for device in weights
        )

    def crossing(self) -> tuple[int, int]:
        first, second = self._device_of("embedding.weight"), self._device_of("output.weight")
        if first.type == second.type == "cpu":
            return 0, 0
        if first == second:
            return _STEP_IN_BYTES, _STEP_OUT_BYTES
        # the token's place in the residual stream, where the layers part
        return self.config.hidden * self.computed.itemsize + _STEP_IN_BYTES, _STEP_OUT_BYTES

    def _weights(self) -> Iterator[tuple[torch.device, str, int, bool]]:
        """Device, part, bytes, and whether they are pages of a file."""
        for name in tensor_shapes(self.config):
            device = self._device_of(name)
            yield device, part_of(name), *self._size(name, device)
        device = self._device_of("output.weight")
        if self.config.tied_head and device != self._device_of("embedding.weight"):
            # a tied head that lies elsewhere is a copy
            yield device, "head", *self._size(head_weight(self.config), device)

    def _size(self, name: str, device: torch.device) -> tuple[int, bool]:
        shape = tensor_shapes(self.config)[name]
        may_pack = device.type == "cpu" and self.dtype is None
        stored = self.source.tensors.get(name)
        if stored is None and may_pack:
            return self._packed_bytes(name), True
        if stored is not None and may_pack and self.format is not None:
            found = packed_format(name, self.config, self.format)
            if found is not None:
                return _packed_size(WeightFormat(found), shape), False
        dtype = self._plain_dtype(name, device)
        as_stored = stored is not None and FLOATS[stored.dtype] is dtype
        return math.prod(shape) * dtype.itemsize, device.type == "cpu" and as_stored

    def _packed_bytes(self, name: str) -> int:
        names = {one for format_ in WeightFormat for one in packed_names(name, format_)}
        tensors = self.source.tensors
        return sum(tensors[one].bytes for one in names if one in tensors)

    def _plain_dtype(self, name: str, device: torch.device) -> torch.dtype:
        if self.dtype is not None:
            return self.dtype
        stored = self.source.tensors.get(name) or self.source.tensors["norm.weight"]
        if stored.dtype == "F16" and device.type == "cpu":
            return torch.bfloat16
        return FLOATS[stored.dtype]

    def _device_of(self, name: str) -> torch.device:
        return self.device if self.split is None else self.split.device_of(name)

    def _layers_on(self, device: torch.device) -> int:
        names = [f"layers.{layer}.mlp_norm.weight" for layer in range(self.config.layers)]
        return sum(self._device_of(name) == device for name in names)

    def _kv_token_bytes(self, device: torch.device) -> int:
        packed = self.source.format or (self.format if self.dtype is None else None)
        narrow = packed is not None and self.dtype is None and device.type == "cpu"
        item_bytes = 2 if narrow else self.computed.itemsize
        whole = self.config.kv_bytes_per_token(item_bytes)
        return whole // self.config.layers * self._layers_on(device)

    def _activation_bytes(self, device: torch.device, chunk: int) -> int:
        config = self.config
        heads = config.heads + 2 * config.kv_heads
        # the residual stream, the normed input, and what the wider of both halves computes
        attention = 2 * heads * config.head_size + config.hidden
        width = 2 * config.hidden + max(attention, 3 * config.mlp)
        size = chunk * width * self.computed.itemsize if self._layers_on(device) else 0
        size += chunk * 2 * config.head_size * 4
        head = device == self._device_of("output.weight")
        return size + (config.vocabulary * 4 if head else 0)


def _packed_size(format_: WeightFormat, shape: tuple[int, ...]) -> int:
    rows, columns = shape
    codes, scales = packed_shapes(format_, rows, columns, format_.usual_group)
    return math.prod(codes) + 2 * math.prod(scales)
