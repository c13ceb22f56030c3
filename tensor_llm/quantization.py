"""Weights in 8 or 4 bits: a code for each weight and one scale for each group of columns.

Owns the formats and the conversion to and from them, in plain torch. Knows nothing of models,
files or of who multiplies with them.

Letters: N rows of a weight (outputs), K columns (inputs), R blocks of 16 rows, G groups.

A weight is `scale * (code - offset)`: symmetric, since at equal size a group of 32 without a
zero point errs less than one of 64 with one. The root mean square error over that of the
weights, on normally distributed weights (Student's t with 5 degrees of freedom in brackets):

    format  group  bits a weight  error
    int8    64     8.25           0.6 % (0.8 %)
    int4    32     4.5            8.2 % (10.4 %)

In a safetensors file the weight NAME lies as two tensors, which kernels read as they are:
    NAME.int8 or NAME.int4    codes, uint8 (R, K / 4 or K / 8, 64)
    NAME.scale                scales, bfloat16 (R, G, 16)
N is padded to whole blocks of 16 rows and K to whole groups; N and K come from the model's
config. The 64 bytes of a step are 16 rows times 4 columns, row by row; in int4 the low halves
are the first 4 columns of 8, the high halves the last 4. So one vector instruction multiplies
a step with 4 activations, and a block of rows is one run of memory."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

import torch
import torch.nn.functional as F
from torch import Tensor

from tensor_llm.shapes import check_shape

BLOCK_ROWS = 16
GROUPS = (32, 64, 128, 256)
"""Columns that may share a scale."""

# what the largest weight of a group becomes, as a share of the lowest code: past 1 it is cut
# off so that the others are told apart better
_INT4_SHARES = (0.85, 0.95, 1.0, 1.05, 1.1, 1.2)
# rows converted at once: bounds the memory to some 20 times this many weights
_PART_WEIGHTS = 1 << 21


class WeightFormat(StrEnum):
    """How a weight is stored."""

    # codes of 1 to 255, offset 128
    INT8 = "int8"
    # two codes of 0 to 15 a byte, offset 8
    INT4 = "int4"

    @property
    def bits(self) -> int:
        return 8 if self is WeightFormat.INT8 else 4

    @property
    def offset(self) -> int:
        return 1 << (self.bits - 1)

    @property
    def usual_group(self) -> int:
        return 64 if self is WeightFormat.INT8 else 32


@dataclass(frozen=True, slots=True, kw_only=True)
class PackedWeight:
    """A weight matrix (rows, columns) in codes and scales."""

    format: WeightFormat
    rows: int
    columns: int
    # columns under one scale
    group: int
    # uint8
    codes: Tensor
    # bfloat16
    scales: Tensor

    def __post_init__(self) -> None:
        shapes = packed_shapes(self.format, self.rows, self.columns, self.group)
        check_shape("codes", self.codes, *shapes[0])
        check_shape("scales", self.scales, *shapes[1])

    @property
    def bytes(self) -> int:
        return self.codes.numel() + 2 * self.scales.numel()

    def tensors(self, name: str) -> dict[str, Tensor]:
        """What a safetensors file holds for the weight `name`."""
        return dict(zip(packed_names(name, self.format), (self.codes, self.scales), strict=True))

    @classmethod
    def of_tensors(
        cls, name: str, tensors: Mapping[str, Tensor], *, rows: int, columns: int
    ) -> "PackedWeight":
        """The reverse of `tensors`; format and group follow from names and shapes.

        Raises:
            ValueError: a tensor is missing, or the shapes fit no group.
        """
        for format_ in WeightFormat:
            codes_name, scales_name = packed_names(name, format_)
            if codes_name in tensors and scales_name in tensors:
                codes, scales = tensors[codes_name], tensors[scales_name]
                group = _group_of(codes_name, codes, scales, format_)
                return cls(
                    format=format_,
                    rows=rows,
                    columns=columns,
                    group=group,
                    codes=codes,
                    scales=scales,
                )
        raise ValueError(f"{name}: allowed are {name}.int8 or {name}.int4, with {name}.scale")

    def dequantize(self, dtype: torch.dtype = torch.float32) -> Tensor:
        """The weight (rows, columns) it stands for."""
        weight_NK = _decode(self, self.codes, self.scales)
        return weight_NK[: self.rows, : self.columns].to(dtype)

    def pick(self, row_B: Tensor) -> Tensor:
        """Some rows (B, columns) in float32, as an embedding reads them."""
        block_B, within_B = row_B // BLOCK_ROWS, row_B % BLOCK_ROWS
        codes = self.codes[block_B].view(len(row_B), -1, BLOCK_ROWS, 4)
        picked = codes.gather(2, within_B.view(-1, 1, 1, 1).expand(-1, codes.shape[1], 1, 4))
        scales = self.scales[block_B]
        scale_BG = scales.gather(2, within_B.view(-1, 1, 1).expand(-1, scales.shape[1], 1))
        code_BK = _split(picked.squeeze(2), self.format).flatten(1)
        return _scaled(code_BK, scale_BG.squeeze(2), self)[:, : self.columns]


def packed_names(name: str, format_: WeightFormat) -> tuple[str, str]:
    """Under which names a file holds codes and scales."""
    return f"{name}.{format_}", f"{name}.scale"


def packed_shapes(
    format_: WeightFormat, rows: int, columns: int, group: int
) -> tuple[tuple[int, int, int], tuple[int, int, int]]:
    """Shapes of codes and scales."""
    if group not in GROUPS:
        raise ValueError(f"group = {group}: allowed is one of {', '.join(map(str, GROUPS))}")
    blocks, groups = -(-rows // BLOCK_ROWS), -(-columns // group)
    steps = groups * group * format_.bits // 32
    return (blocks, steps, 64), (blocks, groups, BLOCK_ROWS)


def quantize(weight_NK: Tensor, format_: WeightFormat, group: int | None = None) -> PackedWeight:
    """Converts a float weight of any type, some rows at a time.

    Raises:
        ValueError: a weight is not finite, or there is no such group.
    """
    check_shape("weight_NK", weight_NK, None, None)
    rows, columns = weight_NK.shape
    group = group or format_.usual_group
    code_shape, scale_shape = packed_shapes(format_, rows, columns, group)
    codes = torch.empty(code_shape, dtype=torch.uint8)
    scales = torch.empty(scale_shape, dtype=torch.bfloat16)
    step = max(1, _PART_WEIGHTS // (columns * BLOCK_ROWS))
    for first in range(0, code_shape[0], step):
        part_NK = weight_NK[first * BLOCK_ROWS : (first + step) * BLOCK_ROWS].float()
        code_NK, scale_NG = _quantize_part(part_NK, format_, group)
        codes[first : first + step] = _interleave(code_NK, format_)
        scales[first : first + step] = scale_NG.view(-1, BLOCK_ROWS, scale_shape[1]).mT
    return PackedWeight(
        format=format_, rows=rows, columns=columns, group=group, codes=codes, scales=scales
    )


def relative_error(weight_NK: Tensor, packed: PackedWeight) -> float:
    """Root mean square of what packing changed, over that of the weights."""
    wanted_NK = weight_NK.float()
    difference_NK = packed.dequantize() - wanted_NK
    return float(difference_NK.norm() / wanted_NK.norm().clamp_min(1e-30))


def _quantize_part(part_NK: Tensor, format_: WeightFormat, group: int) -> tuple[Tensor, Tensor]:
    """Codes (N, K) and scales (N, G) of some rows, padded to whole blocks and groups."""
    if not part_NK.isfinite().all():
        raise ValueError("weight has values that are not finite: allowed are finite numbers")
    rows, columns = part_NK.shape
    padded_NK = F.pad(part_NK, (0, -columns % group, 0, -rows % BLOCK_ROWS))
    weight_XK = padded_NK.view(-1, group)
    lowest = -format_.offset
    # the sign of the largest decides the sign of the scale, for codes reach further down than up
    extreme_X1 = weight_XK.gather(1, weight_XK.abs().argmax(1, keepdim=True))
    if format_ is WeightFormat.INT8:
        scale_X1 = _storable(extreme_X1 / (lowest + 1))
    else:
        scale_X1 = _best_scale(weight_XK, extreme_X1 / lowest, format_)
    code_XK = _codes(weight_XK, scale_X1, format_)
    groups = padded_NK.shape[1] // group
    return code_XK.view(padded_NK.shape), scale_X1.view(-1, groups)


def _best_scale(weight_XK: Tensor, scale_X1: Tensor, format_: WeightFormat) -> Tensor:
    """Of some scales around the plain one that with the least squared error."""
    # stays where every error is beyond what floats can tell
    best_X1 = _storable(scale_X1)
    least_X1 = torch.full_like(scale_X1, torch.inf)
    for share in _INT4_SHARES:
        tried_X1 = _storable(scale_X1 / share)
        code_XK = _codes(weight_XK, tried_X1, format_)
        error_XK = (code_XK - format_.offset).mul_(tried_X1).sub_(weight_XK)
        error_X1 = error_XK.square_().sum(1, keepdim=True)
        best_X1 = torch.where(error_X1 < least_X1, tried_X1, best_X1)
        least_X1 = torch.minimum(error_X1, least_X1)
    return best_X1


def _storable(scale_X1: Tensor) -> Tensor:
    """Rounded before the codes are chosen, so that the rounding itself costs nothing; below
    bfloat16's normal numbers a group counts as zeros."""
    rounded_X1 = scale_X1.bfloat16().float()
    return torch.where(rounded_X1.abs() < 1e-37, 0.0, rounded_X1)


def _codes(weight_XK: Tensor, scale_X1: Tensor, format_: WeightFormat) -> Tensor:
    inverse_X1 = torch.where(scale_X1 == 0, 0.0, 1 / scale_X1)
    # int8 stays off its lowest code, so that each code's negative is one
    lowest = 1 if format_ is WeightFormat.INT8 else 0
    code_XK = (weight_XK * inverse_X1).round_().add_(format_.offset)
    return code_XK.clamp_(lowest, 2 * format_.offset - 1)


def _interleave(code_NK: Tensor, format_: WeightFormat) -> Tensor:
    """Codes (N, K) in the order of the file."""
    code_RQB = code_NK.to(torch.uint8).view(-1, BLOCK_ROWS, code_NK.shape[1] // 4, 4)
    code_RQB = code_RQB.transpose(1, 2).reshape(code_RQB.shape[0], -1, 4 * BLOCK_ROWS)
    if format_ is WeightFormat.INT8:
        return code_RQB
    return code_RQB[:, 0::2] | code_RQB[:, 1::2] << 4


def _split(codes: Tensor, format_: WeightFormat) -> Tensor:
    """(…, steps, bytes) to one code a byte, in the order of columns."""
    if format_ is WeightFormat.INT8:
        return codes
    return torch.stack((codes & 15, codes >> 4), dim=-2).flatten(-3, -2)


def _decode(packed: PackedWeight, codes: Tensor, scales: Tensor) -> Tensor:
    code_RQ4 = _split(codes, packed.format)
    code_RRQ4 = code_RQ4.view(code_RQ4.shape[0], -1, BLOCK_ROWS, 4).transpose(1, 2)
    scale_NG = scales.mT.reshape(-1, scales.shape[1])
    return _scaled(code_RRQ4.reshape(scale_NG.shape[0], -1), scale_NG, packed)


def _scaled(code_NK: Tensor, scale_NG: Tensor, packed: PackedWeight) -> Tensor:
    centred_NK = code_NK.float() - packed.format.offset
    grouped = centred_NK.view(*scale_NG.shape, packed.group) * scale_NG.float()[..., None]
    return grouped.flatten(1)


def _group_of(name: str, codes: Tensor, scales: Tensor, format_: WeightFormat) -> int:
    if codes.dim() != 3 or scales.dim() != 3 or not scales.shape[1]:
        raise ValueError(f"{name} has shape {tuple(codes.shape)}: allowed are three sizes")
    return codes.shape[1] * 32 // format_.bits // scales.shape[1]
