"""The C++ kernels' products and packing against plain torch, at every level."""

import pytest
import torch

from tensor_llm.quantization import WeightFormat, quantize, relative_error
from tests.unit.tensor_llm.kernels.making import (
    KINDS,
    ROWS,
    SIZES,
    TOLERANCE,
    dense,
    error,
    make_weight,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_equal_torch_at_every_level(levels, kind, size):
    weight = make_weight(kind, *size)
    bias = torch.randn(size[0])
    for rows in ROWS:
        x = torch.randn(rows, size[1])
        wanted = x @ dense(weight).T + bias
        for kernels in levels:
            found = kernels.linear(x, weight, bias)
            assert error(found, wanted) < TOLERANCE[kind], (kernels.name, rows)


@pytest.mark.parametrize("size", [(37, 100), (32, 40), (48, 64)], ids=str)
def test_what_lies_behind_a_weight_does_not_count(levels, size):
    """Tiles read whole rows of 32 columns: not beyond the last row."""
    rows, columns = size
    memory = torch.full((rows * columns + 2048,), torch.nan, dtype=torch.bfloat16)
    weight = memory[: rows * columns].view(size).copy_(make_weight("bfloat16", *size))
    for count in ROWS:
        for kernels in levels:
            found = kernels.linear(torch.randn(count, columns), weight)
            assert found.isfinite().all(), (kernels.name, count)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_group_of_large_activations_does_not_blur_the_others(levels, kind):
    """Why activations have a scale a group, not one a row."""
    weight = make_weight(kind, 32, 256)
    x = torch.randn(1, 256)
    x[:, :64] *= 1000
    part = x.clone()
    part[:, :64] = 0
    for kernels in levels:
        rest = kernels.linear(x, weight) - kernels.linear(x - part, weight)
        assert error(rest, part @ dense(weight).T) < 0.05, kernels.name


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_unpacking_equals_torch_at_every_level(levels, kind):
    weight = make_weight(kind, 37, 100)
    for kernels in levels:
        assert error(kernels.dequantize(weight).float(), weight.dequantize()) < 0.003


@pytest.mark.parametrize("format_", list(WeightFormat))
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_packing_equals_torch_at_every_level(levels, format_, size):
    weight = torch.randn(*size)
    wanted = quantize(weight, format_)
    for kernels in levels:
        found = kernels.quantize(weight, format_)
        differing = (found.codes != wanted.codes).float().mean()
        assert differing < 0.002, kernels.name
        assert relative_error(weight, found) <= relative_error(weight, wanted) * 1.001


@pytest.mark.parametrize("format_", list(WeightFormat))
def test_packing_keeps_to_extremes_and_refuses_what_is_not_finite(levels, format_):
    weight = torch.randn(16, 64)
    for kernels in levels:
        for factor in (0.0, 1e-37, 1e30):
            wanted = quantize(weight * factor, format_).dequantize()
            assert torch.equal(kernels.quantize(weight * factor, format_).dequantize(), wanted)
        with pytest.raises(ValueError, match="not finite"):
            kernels.quantize(weight / 0, format_)


def test_zeros_and_huge_activations_stay_finite(levels):
    weight = make_weight("int8", 32, 64)
    for kernels in levels:
        assert not kernels.linear(torch.zeros(2, 64), weight).any()
        assert kernels.linear(torch.full((2, 64), 1e30), weight).isfinite().all()
        assert kernels.linear(torch.full((2, 64), 1e-42), weight).isfinite().all()


def test_weights_elsewhere_or_of_other_types_are_refused(levels):
    with pytest.raises(ValueError, match=r"weight_NK is torch\.float16 on cpu: allowed is"):
        levels[0].linear(torch.randn(1, 8), torch.randn(4, 8).half())
    with pytest.raises(ValueError, match="x_MK has shape"):
        levels[0].linear(torch.randn(1, 9), make_weight("int8", 4, 8))
