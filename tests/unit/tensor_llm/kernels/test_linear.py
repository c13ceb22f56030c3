"""Layers over packed weights take the place of plain ones."""

import pytest
import torch
from torch import nn

from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear, linear, pack_linears
from tensor_llm.quantization import WeightFormat
from tests.unit.tensor_llm.kernels.making import KINDS, dense, error, make_weight


@pytest.mark.parametrize("format_", list(WeightFormat))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_layers_take_the_place_of_plain_ones(format_, dtype):
    model = nn.Sequential(nn.Linear(64, 48), nn.SiLU(), nn.Sequential(nn.Linear(48, 37))).to(dtype)
    x = torch.randn(2, 3, 64, dtype=dtype)
    wanted = model(x).detach()
    pack_linears(model, format_)
    assert isinstance(model[2][0], PackedLinear)
    found = model(x)
    assert found.dtype is dtype
    assert error(found.float(), wanted.float()) < (0.03 if format_ is WeightFormat.INT8 else 0.2)


def test_layers_without_a_library_do_the_same_in_torch(monkeypatch):
    monkeypatch.setattr("tensor_llm.kernels.linear.best_kernels", lambda: None)
    for kind in KINDS:
        weight = make_weight(kind, 37, 100)
        x = torch.randn(2, 100)
        assert error(linear(x, weight), x @ dense(weight).T) < 1e-5


def test_a_packed_embedding_reads_rows():
    packed = make_weight("int8", 37, 64)
    token = torch.tensor([[0, 36], [5, 5]])
    found = PackedEmbedding(packed, torch.bfloat16)(token)
    assert torch.equal(found, packed.dequantize()[token].bfloat16())
