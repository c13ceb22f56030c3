"""The built C++ kernels as Python calls over tensors, at one instruction set level.

Owns what Python must check before memory is handed over. Knows nothing of models.

Letters: M rows of activations, N rows of a weight, K columns."""

import ctypes
import functools
import logging
from ctypes import byref
from pathlib import Path

import torch
from torch import Tensor

from tensor_llm.kernels import builder, structures
from tensor_llm.quantization import BLOCK_ROWS, PackedWeight, WeightFormat, packed_shapes
from tensor_llm.shapes import check_shape

log = logging.getLogger(__name__)

DENSE_TYPES = {torch.bfloat16: structures.BF16, torch.float32: structures.FLOAT32}
"""Of weights that are not packed."""

_KINDS = {WeightFormat.INT8: structures.INT8, WeightFormat.INT4: structures.INT4}
# weights converted at once: bounds the memory where they must become floats first
_PART_WEIGHTS = 1 << 21

AnyWeight = Tensor | PackedWeight
"""bfloat16 or float32 (N, K), or packed."""


class Kernels:
    """Kernels of one level; calls run on as many threads as torch uses."""

    def __init__(self, library: ctypes.CDLL, level: int) -> None:
        self.library = library
        self.level = level
        self.name: str = library.noidle_level_name(level).decode()
        # products of many rows are at home here, too
        self.has_tiles = self.name == "amx"

    def linear(self, x_MK: Tensor, weight: AnyWeight, bias_N: Tensor | None = None) -> Tensor:
        """x weight^T + bias in float32 (M, N), for any number of rows; activations count in
        the type of a weight that is not packed, else in 8 bits and a scale a group; where there
        are tiles and many rows, in bfloat16."""
        rows, columns = weight_size(weight)
        check_shape("x_MK", x_MK, None, columns)
        x_MK = x_MK.to(torch.float32).contiguous()
        bias_N = None if bias_N is None else bias_N.to(torch.float32).contiguous()
        y_MN = torch.empty(len(x_MK), rows)
        structure = structure_of(weight, bias_N)
        self.library.noidle_linear(
            self.level,
            byref(structure),
            x_MK.data_ptr(),
            len(x_MK),
            y_MN.data_ptr(),
            torch.get_num_threads(),
        )
        return y_MN

    def dequantize(self, weight: PackedWeight) -> Tensor:
        """The weight (N, K) in bfloat16."""
        out_NK = torch.empty(weight.rows, weight.columns, dtype=torch.bfloat16)
        self.library.noidle_dequantize(
            self.level, byref(structure_of(weight)), out_NK.data_ptr(), torch.get_num_threads()
        )
        return out_NK

    def quantize(
        self, weight_NK: Tensor, format_: WeightFormat, group: int | None = None
    ) -> PackedWeight:
        """What `quantization.quantize` gives, many times faster; where two scales err the same
        but for rounding it may take the other one.

        Raises:
            ValueError: a weight is not finite, or there is no such group.
        """
        check_shape("weight_NK", weight_NK, None, None)
        rows, columns = weight_NK.shape
        group = group or format_.usual_group
        code_shape, scale_shape = packed_shapes(format_, rows, columns, group)
        codes = torch.empty(code_shape, dtype=torch.uint8)
        scales = torch.empty(scale_shape, dtype=torch.bfloat16)
        step = BLOCK_ROWS * max(1, _PART_WEIGHTS // (columns * BLOCK_ROWS))
        for first in range(0, rows, step):
            part_NK = weight_NK[first : first + step].float().contiguous()
            if not part_NK.isfinite().all():
                raise ValueError("weight has values that are not finite: allowed are finite ones")
            like = structures.Weight(0, 0, 0, len(part_NK), columns, _KINDS[format_], group)
            block = first // BLOCK_ROWS
            self.library.noidle_quantize(
                self.level,
                byref(like),
                part_NK.data_ptr(),
                codes[block].data_ptr(),
                scales[block].data_ptr(),
                torch.get_num_threads(),
            )
        return PackedWeight(
            format=format_, rows=rows, columns=columns, group=group, codes=codes, scales=scales
        )

    def read(self, memory: Tensor) -> None:
        """Reads memory from end to end, as fast as it goes: for measuring that."""
        _check_memory("memory", memory, torch.uint8)
        self.library.noidle_read(
            self.level, memory.data_ptr(), memory.numel(), torch.get_num_threads()
        )


def weight_size(weight: AnyWeight) -> tuple[int, int]:
    """Rows and columns."""
    if isinstance(weight, PackedWeight):
        return weight.rows, weight.columns
    rows, columns = weight.shape
    return rows, columns


def structure_of(weight: AnyWeight, bias_N: Tensor | None = None) -> structures.Weight:
    """What the C++ side reads; holds addresses only, so the tensors must outlive it.

    Raises:
        ValueError: the kernels cannot read this weight or bias where it lies.
    """
    rows, columns = weight_size(weight)
    if bias_N is not None:
        check_shape("bias_N", bias_N, rows)
        _check_memory("bias_N", bias_N, torch.float32)
    bias = 0 if bias_N is None else bias_N.data_ptr()
    if isinstance(weight, Tensor):
        _check_memory("weight_NK", weight, *DENSE_TYPES)
        kind = DENSE_TYPES[weight.dtype]
        return structures.Weight(weight.data_ptr(), 0, bias, rows, columns, kind, 0)
    _check_memory("codes", weight.codes, torch.uint8)
    _check_memory("scales", weight.scales, torch.bfloat16)
    kind = _KINDS[weight.format]
    codes, scales = weight.codes.data_ptr(), weight.scales.data_ptr()
    return structures.Weight(codes, scales, bias, rows, columns, kind, weight.group)


def all_kernels(cache: Path | None = None) -> list[Kernels]:
    """One for each level this processor can run, slowest first.

    Raises:
        builder.BuildFault: there is no library and none can be built.
    """
    path = builder.library_path(cache)
    try:
        library = ctypes.CDLL(str(path))
        structures.declare(library)
    except (OSError, AttributeError) as error:
        raise builder.BuildFault(f"{path}: cannot be loaded: {error}; delete it") from None
    levels = range(library.noidle_level_count())
    return [Kernels(library, level) for level in levels if library.noidle_level_here(level)]


@functools.cache
def best_kernels() -> Kernels | None:
    """The fastest level here, or None, said once, where plain torch must do."""
    try:
        kernels = all_kernels()[-1]
    except builder.BuildFault as fault:
        log.warning(
            "no C++ kernels, so decoding is several times slower: %s",
            fault,
            extra={"event": "kernels-missing"},
        )
        return None
    log.info("C++ kernels: %s", kernels.name, extra={"event": "kernels"})
    return kernels


def _check_memory(name: str, tensor: Tensor, *dtypes: torch.dtype) -> None:
    plain = tensor.device.type == "cpu" and tensor.is_contiguous()
    if tensor.dtype not in dtypes or not plain:
        what, allowed = f"{tensor.dtype} on {tensor.device}", " or ".join(map(str, dtypes))
        raise ValueError(f"{name} is {what}: allowed is {allowed} on the CPU, contiguous")
