import pytest
import torch

from tensor_llm.split import LayerSplit
from tests.unit.tensor_llm.builders import make_model

CPU, META = torch.device("cpu"), torch.device("meta")


@pytest.mark.parametrize("cut", [0, 1, 3])
def test_layers_below_the_cut_lie_first_the_head_second(cut):
    split = LayerSplit(first=CPU, second=META, layer=cut)
    for name, _ in make_model(layers=3, tied_head=False).named_parameters():
        first = name.startswith("embedding") or any(
            name.startswith(f"layers.{layer}.") for layer in range(cut)
        )
        assert split.device_of(name) == (CPU if first else META), name
