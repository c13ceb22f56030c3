"""Puts a decoder together from the tensors of a directory, each straight on its device.

Owns which weights stay packed or become so. Knows nothing of the store or of tokenizers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn

from noidle.errors import CheckpointError
from tensor_llm.config import ModelConfig
from tensor_llm.families.directory import Source
from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear, pack
from tensor_llm.model import Decoder
from tensor_llm.parts import head_weight, packed_format, tensor_shapes
from tensor_llm.quantization import PackedWeight, WeightFormat
from tensor_llm.unpacking import read_packed
from tensor_llm.weights import FLOATS, TensorReader

DeviceOf = Callable[[str], torch.device]


def skeleton(config: ModelConfig) -> Decoder:
    """A decoder without memory."""
    with torch.device("meta"):
        return Decoder(config)


def assemble(
    source: Source,
    *,
    device_of: DeviceOf,
    dtype: torch.dtype | None = None,
    format_: WeightFormat | None = None,
) -> Decoder:
    """`dtype` None: as stored, but float16 becomes bfloat16 on the CPU. Packed weights stay so on
    the CPU unless a type is asked for; `format_` packs plain ones there.

    Raises:
        CheckpointError: naming the tensor that cannot be used.
    """
    model = skeleton(source.config)
    weights = _Weights(source, dtype, format_)
    shapes = tensor_shapes(source.config)
    for name in shapes:
        if name != "output.weight":
            _put(model, name, weights.load(name, device_of(name)), weights)
    _put_head(model, weights, device_of)
    return model.eval()


class _Weights:
    """The tensors of a source as the model shall have them."""

    def __init__(
        self, source: Source, dtype: torch.dtype | None, format_: WeightFormat | None
    ) -> None:
        self._source = source
        self._dtype = dtype
        self._format = None if dtype is not None else format_
        self._reader = TensorReader()
        # of activations: that of the norms
        self.computed = self._wanted("norm.weight", torch.device("cpu"))

    def load(self, name: str, device: torch.device) -> Tensor | PackedWeight:
        if name not in self._source.tensors:
            return self._packed(name, device)
        stored = self._source.tensors[name]
        format_ = self._packs(name, device)
        if format_ is not None:
            # read, not mapped: the plain weight is let go as soon as it is packed
            plain = self._reader.read(stored)
            try:
                return pack(plain, format_)
            except ValueError as error:
                raise CheckpointError.of(stored.path, str(error), stored.name) from None
        return self._reader.load(stored, device, self._wanted(name, device))

    def _packs(self, name: str, device: torch.device) -> WeightFormat | None:
        if self._format is None or device.type != "cpu":
            return None
        found = packed_format(name, self._source.config, self._format)
        return None if found is None else WeightFormat(found)

    def _packed(self, name: str, device: torch.device) -> Tensor | PackedWeight:
        packed = read_packed(self._source, name, self._reader)
        if device.type == "cpu" and self._dtype is None:
            return packed
        return packed.dequantize(self._dtype or self.computed).to(device)

    def _wanted(self, name: str, device: torch.device) -> torch.dtype:
        stored = self._source.tensors[name].dtype
        if self._dtype is not None:
            return self._dtype
        if stored == "F16" and device.type == "cpu":
            return torch.bfloat16
        return FLOATS[stored]


def _put(model: Decoder, name: str, weight: Tensor | PackedWeight, weights: _Weights) -> None:
    owner, _, leaf = name.rpartition(".")
    module = model.get_submodule(owner)
    if isinstance(weight, PackedWeight):
        parent, _, child = owner.rpartition(".")
        setattr(model.get_submodule(parent), child, _packed_module(owner, weight, weights))
    elif isinstance(module, PackedLinear):
        assert leaf == "bias"
        module.bias_N = weight
    else:
        setattr(module, leaf, nn.Parameter(weight))


def _packed_module(owner: str, weight: PackedWeight, weights: _Weights) -> nn.Module:
    if owner == "embedding":
        return PackedEmbedding(weight, weights.computed)
    return PackedLinear(weight)


def _put_head(model: Decoder, weights: _Weights, device_of: DeviceOf) -> None:
    """A tied head shares the embedding's weight where it lies on the same device."""
    device = device_of("output.weight")
    embedding = model.embedding
    if model.config.tied_head and isinstance(embedding, PackedEmbedding) and device.type == "cpu":
        _put(model, "output.weight", embedding.packed, weights)
        return
    if model.config.tied_head and _device_of(embedding) == device:
        model.tie()
        return
    weight = weights.load(head_weight(model.config), device)
    _put(model, "output.weight", weight, weights)


def _device_of(embedding: nn.Module) -> torch.device | None:
    weight = getattr(embedding, "weight", None)
    return None if weight is None else weight.device
