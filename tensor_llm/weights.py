"""Tensors in safetensors files: writing them, and reading them one at a time with every name,
shape and type checked first.

Owns which of them share the file's pages. Knows nothing of models' folders or of what the tensors
mean."""

import mmap
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from torch import Tensor

from noidle.errors import CheckpointError
from tensor_llm.tensor_file import StoredTensor, read_header
from tensor_llm.tensor_writer import TensorWriter

FLOATS = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
_TYPES = {**FLOATS, "U8": torch.uint8}
_SPELLINGS = {dtype: name for name, dtype in _TYPES.items()}


class TensorReader:
    """Reads tensors of files whose headers were checked; maps each file once."""

    def __init__(self) -> None:
        self._mapped: dict[Path, torch.UntypedStorage] = {}

    def load(
        self, stored: StoredTensor, device: torch.device, dtype: torch.dtype | None = None
    ) -> Tensor:
        """In `dtype` or as stored. On the CPU and unconverted it shares the file's pages until
        written to; else the file's pages do not count into the process's memory.

        Raises:
            CheckpointError: the file was changed meanwhile.
        """
        own = _TYPES[stored.dtype]
        if device.type == "cpu" and dtype in (None, own) and stored.offset % own.itemsize == 0:
            return self._map(stored)
        if device.type == "meta":
            return torch.empty(stored.shape, dtype=dtype or own, device=device)
        # copied even where nothing changes: pages that were read for a moment would be mapped
        # a second time
        return self.read(stored).to(device=device, dtype=dtype, copy=True)

    @staticmethod
    def read(stored: StoredTensor) -> Tensor:
        """As stored, for a moment: pages of the file that are let go with the tensor. Memory from
        the heap would leave holes there, since what is made of it stays.

        Raises:
            CheckpointError: the file was changed meanwhile.
        """
        first = stored.offset // mmap.ALLOCATIONGRANULARITY * mmap.ALLOCATIONGRANULARITY
        within = stored.offset - first
        try:
            with stored.path.open("rb") as file:
                # a copy on write, for torch wants memory that may be written to
                pages = mmap.mmap(
                    file.fileno(), within + stored.bytes, access=mmap.ACCESS_COPY, offset=first
                )
        except ValueError:
            raise _unreadable(stored, "it was cut") from None
        except OSError as error:
            raise _unreadable(stored, error) from None
        data = torch.frombuffer(pages, dtype=torch.uint8, offset=within, count=stored.bytes)
        own = _TYPES[stored.dtype]
        if within % own.itemsize:
            data = data.clone()
        return data.view(own).view(stored.shape)

    def _map(self, stored: StoredTensor) -> Tensor:
        if stored.path not in self._mapped:
            self._mapped[stored.path] = _map_file(stored)
        storage = self._mapped[stored.path]
        if stored.offset + stored.bytes > storage.nbytes():
            raise _unreadable(stored, "it was cut")
        empty = torch.empty(0, dtype=_TYPES[stored.dtype])
        strides = torch.empty(stored.shape, device="meta").stride()
        return empty.set_(storage, stored.offset // empty.itemsize, stored.shape, strides)


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Writes them as they are."""
    planned = {
        name: (_SPELLINGS.get(tensor.dtype) or _other(tensor.dtype), tuple(tensor.shape))
        for name, tensor in tensors.items()
    }
    with TensorWriter(path, planned) as writer:
        for name, tensor in tensors.items():
            writer.write(name, (data_of(tensor),))


def data_of(tensor: Tensor) -> memoryview:
    """The tensor's bytes in order; its own memory where it lies on the CPU in one piece."""
    plain = tensor.detach().cpu().contiguous()
    return plain.view(-1).view(torch.uint8).numpy().data


def read_tensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    device_of: Callable[[str], torch.device],
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Yields each tensor of `shapes` on its device, in `dtype` or as stored; no more than one
    is held twice.

    Raises:
        CheckpointError: the file is missing, cut or malformed, or a tensor is missing, not
            expected, of another shape, or not of floats. Raised before any is read.
    """
    found = read_header(path)
    _check_names(path, set(found), set(shapes))
    for name, shape in shapes.items():
        _check_tensor(path, name, found[name].shape, found[name].dtype, shape)
    reader = TensorReader()
    for name in shapes:
        yield name, reader.load(found[name], device_of(name), dtype)


def _map_file(stored: StoredTensor) -> torch.UntypedStorage:
    """Privately: pages are shared with other processes until they are written to."""
    try:
        size = stored.path.stat().st_size
        storage = torch.UntypedStorage.from_file(str(stored.path), False, size)
    except (OSError, RuntimeError) as error:
        raise _unreadable(stored, error) from None
    assert isinstance(storage, torch.UntypedStorage)
    return storage


def _unreadable(stored: StoredTensor, fault: object) -> CheckpointError:
    return CheckpointError.of(stored.path, f"cannot be read: {fault}", stored.name)


def _other(dtype: torch.dtype) -> str:
    names = {torch.int64: "I64", torch.int32: "I32", torch.bool: "BOOL", torch.float64: "F64"}
    return names[dtype]


def _check_names(path: Path, found: set[str], wanted: set[str]) -> None:
    for name in sorted(wanted - found):
        raise CheckpointError.of(path, "this tensor is missing", name)
    for name in sorted(found - wanted):
        raise CheckpointError.of(path, "the config has no such tensor", name[:200])


def _check_tensor(
    path: Path, name: str, found: tuple[int, ...], dtype: str, wanted: tuple[int, ...]
) -> None:
    if found != wanted:
        raise CheckpointError.of(path, f"shape {found}: the config wants {wanted}", name)
    if dtype not in FLOATS:
        raise CheckpointError.of(path, f"type {dtype}: allowed is {', '.join(FLOATS)}", name)
