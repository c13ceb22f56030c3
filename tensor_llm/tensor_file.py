"""What a safetensors file says it holds, checked against its size before any weight is read.

Owns the header: names, types, shapes and places of tensors. Knows nothing of torch or of what
the tensors mean.

The format: 8 bytes with the header's length, the header as a JSON object, then the data."""

import math
import os
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from noidle.errors import CheckpointError, printable, shorten
from tensor_llm.json_file import parse_json

LARGEST_HEADER_BYTES = 4 << 20
ITEM_BYTES = {
    "F64": 8, "F32": 4, "F16": 2, "BF16": 2, "I64": 8, "I32": 4, "I16": 2, "I8": 1,
    "U64": 8, "U32": 4, "U16": 2, "U8": 1, "BOOL": 1, "F8_E4M3": 1, "F8_E5M2": 1,
}  # fmt: skip
_LARGEST_SIZE = 1 << 40
_MOST_SIZES = 8
# how a note of git-lfs begins, read as a length
_LFS = int.from_bytes(b"version ", "little")


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTensor:
    """Where a tensor lies."""

    path: Path
    # in the file
    name: str
    # as safetensors spells it: F32, BF16, …
    dtype: str
    shape: tuple[int, ...]
    # of its first byte, from the beginning of the file
    offset: int
    bytes: int


def read_header(path: Path) -> dict[str, StoredTensor]:
    """Every tensor of a file by its name there, in the order of their data.

    Raises:
        CheckpointError: the file is missing, cut, or its header does not fit it; naming the
            tensor at fault.
    """
    try:
        # a pipe would block the opening itself
        if not stat.S_ISREG(path.stat().st_mode):
            raise CheckpointError.of(path, "cannot be read: it is no plain file")
        with path.open("rb") as file:
            size = os.fstat(file.fileno()).st_size
            length = int.from_bytes(file.read(8), "little")
            if size < 8 or length > size - 8:
                fault = f"cannot be read: {size} bytes cannot hold a header of {length}"
                if length == _LFS:
                    fault = "is a note of git-lfs, not the file itself: run `git lfs pull` there"
                raise CheckpointError.of(path, fault)
            if length > LARGEST_HEADER_BYTES:
                allowed = f"allowed are {LARGEST_HEADER_BYTES}"
                raise CheckpointError.of(
                    path, f"cannot be read: header of {length} bytes; {allowed}"
                )
            header = parse_json(file.read(length), path)
    except OSError as error:
        raise CheckpointError.of(path, f"cannot be read: {error}") from None
    _check_metadata(header.pop("__metadata__", {}), path)
    found = [_entry(path, name, entry, 8 + length) for name, entry in header.items()]
    found.sort(key=lambda tensor: (tensor.offset, tensor.bytes))
    _check_places(found, path, 8 + length, size)
    return {tensor.name: tensor for tensor in found}


def _entry(path: Path, name: str, entry: object, data: int) -> StoredTensor:
    part = printable(name, 200)
    if not isinstance(entry, dict) or set(entry) != {"dtype", "shape", "data_offsets"}:
        raise CheckpointError.of(path, "allowed are dtype, shape and data_offsets", part)
    dtype, shape, places = entry["dtype"], entry["shape"], entry["data_offsets"]
    if not isinstance(dtype, str) or dtype not in ITEM_BYTES:
        allowed = ", ".join(ITEM_BYTES)
        raise CheckpointError.of(path, f"type {shorten(dtype)}: allowed is {allowed}", part)
    if not _whole_numbers(shape, _MOST_SIZES) or not _whole_numbers(places, 2, least=2):
        raise CheckpointError.of(path, "its shape or its place is malformed", part)
    begin, end = places
    wanted = math.prod(shape) * ITEM_BYTES[dtype]
    if end - begin != wanted:
        fault = f"shape {tuple(shape)} of {dtype} takes {wanted} bytes: it has {end - begin}"
        raise CheckpointError.of(path, fault, part)
    return StoredTensor(
        path=path, name=name, dtype=dtype, shape=tuple(shape), offset=data + begin, bytes=wanted
    )


def _whole_numbers(values: object, most: int, least: int = 0) -> bool:
    if not isinstance(values, list) or not least <= len(values) <= most:
        return False
    return all(type(value) is int and 0 <= value < _LARGEST_SIZE for value in values)


def _check_places(found: list[StoredTensor], path: Path, data: int, size: int) -> None:
    """Each byte of the data belongs to one tensor."""
    end = data
    for tensor in found:
        if tensor.offset != end:
            fault = "overlaps another" if tensor.offset < end else "leaves a gap before it"
            raise CheckpointError.of(path, fault, printable(tensor.name, 200))
        end += tensor.bytes
        if end > size:
            fault = f"cannot be read: it ends at byte {end}, the file at {size}"
            raise CheckpointError.of(path, fault, printable(tensor.name, 200))
    if end != size:
        raise CheckpointError.of(path, f"cannot be read: {size - end} bytes belong to no tensor")


def _check_metadata(metadata: object, path: Path) -> None:
    if not isinstance(metadata, Mapping):
        raise CheckpointError.of(path, "allowed is one object of texts", "__metadata__")
    values: Mapping[str, Any] = metadata
    if not all(isinstance(value, str) for value in values.values()):
        raise CheckpointError.of(path, "allowed is one object of texts", "__metadata__")
