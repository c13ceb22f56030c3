"""Writes a safetensors file tensor by tensor, so that no more than one is in memory.

Knows nothing of torch. The data begins at a multiple of 64 bytes, and tensors of whole multiples
come first, so that where the file is mapped vectors of theirs lie in one cache line."""

import json
import math
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from noidle.errors import CheckpointError
from tensor_llm.tensor_file import ITEM_BYTES, StoredTensor

_ALIGNED = 64
_PART_BYTES = 8 << 20


class TensorWriter:
    """`planned` maps each name to its type, as safetensors spells it, and its shape; each must
    be written once before the block ends."""

    def __init__(self, path: Path, planned: Mapping[str, tuple[str, tuple[int, ...]]]) -> None:
        sizes = {name: math.prod(shape) * ITEM_BYTES[d] for name, (d, shape) in planned.items()}
        header: dict[str, object] = {"__metadata__": {"format": "pt"}}
        places: dict[str, tuple[int, int]] = {}
        end = 0
        for name in sorted(planned, key=lambda one: sizes[one] % _ALIGNED != 0):
            dtype, shape = planned[name]
            places[name] = (end, end + sizes[name])
            end += sizes[name]
            header[name] = {"dtype": dtype, "shape": shape, "data_offsets": places[name]}
        text = json.dumps(header, separators=(",", ":")).encode()
        text += b" " * (-(8 + len(text)) % _ALIGNED)
        self._data = 8 + len(text)
        self._places = places
        self._file = path.open("wb")
        self._file.write(len(text).to_bytes(8, "little") + text)

    def write(self, name: str, parts: Iterable[bytes | memoryview]) -> None:
        """The bytes of one tensor, in any order of tensors."""
        begin, end = self._places.pop(name)
        self._file.seek(self._data + begin)
        for part in parts:
            self._file.write(part)
        assert self._file.tell() == self._data + end

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.close()
        assert kind is not None or not self._places


def tensor_bytes(stored: StoredTensor) -> Iterable[bytes]:
    """The bytes of a tensor as they lie in its file, in parts of 8 MiB.

    Raises:
        CheckpointError: the file ended early.
    """
    left = stored.bytes
    with stored.path.open("rb") as file:
        file.seek(stored.offset)
        while left:
            part = file.read(min(left, _PART_BYTES))
            if not part:
                raise CheckpointError.of(stored.path, "cannot be read: it was cut", stored.name)
            left -= len(part)
            yield part
