"""Packed weights: their error, their order in the file, and what is refused."""

import pytest
import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from tensor_llm.quantization import (
    GROUPS,
    PackedWeight,
    WeightFormat,
    packed_shapes,
    quantize,
    relative_error,
)

FORMATS = list(WeightFormat)
SIZES = [(16, 64), (1, 1), (37, 100), (130, 257), (64, 32)]


def make_weight(rows: int, columns: int, seed: int = 0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(rows, columns, generator=generator) * 0.02


@pytest.mark.parametrize(
    ("format_", "worst", "bits"),
    [(WeightFormat.INT8, 0.0062, 8.25), (WeightFormat.INT4, 0.084, 4.5)],
)
def test_error_and_size_are_what_the_docstring_states(format_, worst, bits):
    weight = make_weight(512, 1024)
    packed = quantize(weight, format_)
    assert relative_error(weight, packed) < worst
    assert packed.bytes * 8 / weight.numel() == bits


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("size", SIZES)
def test_any_size_keeps_shape_and_comes_back_close(format_, size):
    weight = make_weight(*size)
    back = quantize(weight, format_).dequantize()
    assert back.shape == weight.shape
    bound = 0.01 if format_ is WeightFormat.INT8 else 0.2
    assert (back - weight).abs().max() <= bound * weight.abs().max()


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("group", GROUPS)
def test_every_group_serves(format_, group):
    weight = make_weight(20, 300)
    packed = quantize(weight, format_, group)
    assert packed.group == group
    assert relative_error(weight, packed) < (0.01 if format_ is WeightFormat.INT8 else 0.12)


@pytest.mark.parametrize("format_", FORMATS)
def test_numbers_on_the_grid_survive_exactly(format_):
    """Codes -7 to 7 times a power of two can be told exactly in both formats."""
    generator = torch.Generator().manual_seed(3)
    weight = torch.randint(-7, 8, (32, 64), generator=generator).float()
    weight[:, ::32] = -8.0 if format_ is WeightFormat.INT4 else 127.0
    assert torch.equal(quantize(weight, format_).dequantize(), weight)


@pytest.mark.parametrize("format_", FORMATS)
def test_a_step_holds_four_columns_of_sixteen_rows(format_):
    """The order the kernels rely on, told once more by hand."""
    weight = make_weight(32, 64)
    packed = quantize(weight, format_)
    row, column = 21, 46
    if format_ is WeightFormat.INT8:
        code = int(packed.codes[row // 16, column // 4, row % 16 * 4 + column % 4])
    else:
        both = int(packed.codes[row // 16, column // 8, row % 16 * 4 + column % 4])
        code = both >> 4 if column % 8 >= 4 else both & 15
    scale = float(packed.scales[row // 16, column // packed.group, row % 16])
    wanted = float(packed.dequantize()[row, column])
    assert scale * (code - format_.offset) == pytest.approx(wanted, rel=1e-6)


@pytest.mark.parametrize("format_", FORMATS)
def test_rows_are_picked_as_an_embedding_needs_them(format_):
    packed = quantize(make_weight(37, 100), format_)
    row = torch.tensor([36, 0, 5, 5])
    assert torch.equal(packed.pick(row), packed.dequantize()[row])


@pytest.mark.parametrize("format_", FORMATS)
def test_a_file_gives_back_the_same_weight(format_, tmp_path):
    packed = quantize(make_weight(37, 100), format_)
    save_file(packed.tensors("a.weight"), tmp_path / "w.safetensors")
    found = load_file(tmp_path / "w.safetensors")
    assert set(found) == {f"a.weight.{format_}", "a.weight.scale"}
    back = PackedWeight.of_tensors("a.weight", found, rows=37, columns=100)
    assert (back.format, back.group) == (format_, packed.group)
    assert torch.equal(back.dequantize(), packed.dequantize())


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_floats_are_taken_as_they_are(format_, dtype):
    weight = make_weight(20, 64).to(dtype)
    assert torch.equal(quantize(weight, format_).codes, quantize(weight.float(), format_).codes)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("factor", [0.0, 1e-37, 1e-30, 1e36])
def test_extreme_scales_stay_finite(format_, factor):
    weight = make_weight(16, 64) * factor
    back = quantize(weight, format_).dequantize()
    assert back.isfinite().all()
    assert (back - weight).abs().max() <= 0.2 * weight.abs().max() + 1e-36


@pytest.mark.parametrize("bad", [float("nan"), float("inf")])
def test_weights_that_are_not_finite_are_refused(bad):
    weight = make_weight(16, 64)
    weight[3, 5] = bad
    with pytest.raises(ValueError, match="not finite"):
        quantize(weight, WeightFormat.INT4)


def test_a_group_that_kernels_lack_is_refused():
    with pytest.raises(ValueError, match="group = 48: allowed is one of 32, 64, 128, 256"):
        packed_shapes(WeightFormat.INT8, 16, 64, 48)


def test_tensors_of_other_sizes_are_refused():
    tensors = quantize(make_weight(37, 100), WeightFormat.INT4).tensors("a")
    with pytest.raises(ValueError, match="codes has shape"):
        PackedWeight.of_tensors("a", tensors, rows=60, columns=100)
    with pytest.raises(ValueError, match=r"a: allowed are a\.int8 or a\.int4"):
        PackedWeight.of_tensors("a", {"a.int4": tensors["a.int4"]}, rows=37, columns=100)
