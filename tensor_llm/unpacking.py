"""Packed weights of a directory, read and turned back into plain ones.

Knows nothing of models."""

import torch

from noidle.errors import CheckpointError
from tensor_llm.families.directory import Source
from tensor_llm.parts import tensor_shapes
from tensor_llm.quantization import PackedWeight, WeightFormat, packed_names
from tensor_llm.weights import TensorReader, data_of


def read_packed(source: Source, name: str, reader: TensorReader) -> PackedWeight:
    """The packed weight `name`, which shares the file's pages.

    Raises:
        CheckpointError: codes and scales do not fit the config or each other.
    """
    cpu = torch.device("cpu")
    stored = {
        one: source.tensors[one]
        for format_ in WeightFormat
        for one in packed_names(name, format_)
        if one in source.tensors
    }
    tensors = {one: reader.load(place, cpu) for one, place in stored.items()}
    rows, columns = tensor_shapes(source.config)[name]
    try:
        return PackedWeight.of_tensors(name, tensors, rows=rows, columns=columns)
    except ValueError as error:
        path = next((place.path for place in stored.values()), source.folder)
        raise CheckpointError.of(path, str(error), name) from None


def unpacked_bytes(source: Source, name: str) -> memoryview:
    """The bytes of a packed weight as bfloat16."""
    packed = read_packed(source, name, TensorReader())
    return data_of(packed.dequantize(torch.bfloat16))
