"""Tensors in safetensors files: writing them, and reading them one at a time with every name,
shape and type checked first.

Knows nothing of models' folders or of what the tensors mean."""

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from noidle.errors import CheckpointError

_FLOATS = ("F32", "BF16", "F16")


def write_tensors(tensors: Mapping[str, Tensor], path: Path) -> None:
    """Writes them as they are; two names must not share memory."""
    save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)


def read_tensors(
    path: Path,
    shapes: Mapping[str, tuple[int, ...]],
    *,
    device_of: Callable[[str], torch.device],
    dtype: torch.dtype | None = None,
) -> Iterator[tuple[str, Tensor]]:
    """Yields each tensor of `shapes` on its device, in `dtype` or as stored; no more than one
    is held twice. On the CPU and unconverted it shares the file's pages until written to.

    Raises:
        CheckpointError: the file is missing, cut or malformed, or a tensor is missing, not
            expected, of another shape, or not of floats. Raised before any is read.
    """
    try:
        with safe_open(path, framework="pt", device="cpu") as file:
            _check_names(path, set(file.keys()), set(shapes))
            for name, shape in shapes.items():
                found = file.get_slice(name)
                _check_tensor(path, name, tuple(found.get_shape()), found.get_dtype(), shape)
            for name in shapes:
                yield name, file.get_tensor(name).to(device=device_of(name), dtype=dtype)
    except (SafetensorError, OSError) as error:
        raise CheckpointError.of(path, f"cannot be read: {error}") from None


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
    if dtype not in _FLOATS:
        raise CheckpointError.of(path, f"type {dtype}: allowed is {', '.join(_FLOATS)}", name)
