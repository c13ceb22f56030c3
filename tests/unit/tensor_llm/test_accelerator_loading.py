"""Models load onto whatever accelerator torch finds, packed ones too; needs no transformers."""

import pytest
import torch

from tensor_llm.adding import add_model
from tensor_llm.checkpoint import load_folder, load_model, save_model
from tensor_llm.families import export
from tensor_llm.generate import generate
from tensor_llm.model import Decoder
from tensor_llm.quantization import WeightFormat
from tensor_llm.rope_scaling import RopeScaling
from tensor_llm.split import LayerSplit
from tensor_llm.store import ModelStore
from tests.unit.tensor_llm.builders import make_model, make_tokenizer, random_tokens

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(
        not torch.accelerator.is_available(), reason="torch finds no accelerator on this machine"
    ),
]
TOKENS = random_tokens(40)
FAMILIES = {
    "llama": {
        "family": "llama",
        "rope": RopeScaling(kind="llama3", factor=8.0, original_context=32),
        "tied_head": True,
    },
    "mistral": {"family": "mistral", "window": 7, "tied_head": False},
    "qwen2": {"family": "qwen2", "query_key_value_bias": True, "window": 9, "full_layers": (0,)},
    "qwen3": {"family": "qwen3", "query_key_norm": True, "tied_head": False, "head_size": 16},
}


@pytest.fixture
def device() -> torch.device:
    found = torch.accelerator.current_accelerator()
    assert found is not None
    return found


@pytest.fixture(params=FAMILIES)
def folder(request, tmp_path):
    """A model of a family, laid out as transformers does it, every weight random."""
    model = make_model(vocabulary=300, context=128, **FAMILIES[request.param])
    generator = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn(parameter.shape, generator=generator)
    store = ModelStore(tmp_path / "data")
    save_model(
        store, "own", "r1", model=model, tokenizer=make_tokenizer(), step=0, bytes_per_token=2
    )
    export(store.directory("own", "r1"), tmp_path / "theirs")
    return tmp_path / "theirs"


def logits_of(model: Decoder) -> torch.Tensor:
    device = model.embedding.weight.device
    with torch.no_grad():
        return model(torch.tensor([TOKENS], device=device)).cpu()


def assert_close(ours: torch.Tensor, wanted: torch.Tensor, tolerance: float = 1e-4) -> None:
    assert (ours - wanted).abs().max() / wanted.abs().max() < tolerance


def test_every_family_computes_there_what_it_computes_here(folder, device):
    here, there = load_folder(folder).model, load_folder(folder, place=device).model
    assert {one.device.type for one in there.parameters()} == {device.type}
    assert_close(logits_of(there), logits_of(here))
    wanted = generate(here, TOKENS, max_tokens=32)
    assert generate(there, TOKENS, max_tokens=32) == wanted


@pytest.mark.parametrize("format_", WeightFormat)
def test_packed_weights_become_plain_there(folder, device, tmp_path, format_):
    store = ModelStore(tmp_path / "packed")
    add_model(store, folder, "mini", format=format_)
    here = load_model(store, "mini", dtype=torch.float32).model
    for dtype in (torch.float32, None):
        there = load_model(store, "mini", dtype=dtype, place=device).model
        assert {one.dtype for one in there.parameters()} == {torch.float32}
        assert_close(logits_of(there), logits_of(here))


def test_types_are_as_stored_or_as_asked_for(folder, device, tmp_path):
    for dtype in (torch.bfloat16, torch.float16):
        model = load_folder(folder, place=device, dtype=dtype).model
        assert {one.dtype for one in model.parameters()} == {dtype}


@pytest.mark.parametrize("layer", [0, 1, 2])
def test_a_split_model_has_each_tensor_where_it_belongs(folder, device, layer):
    split = LayerSplit(first=torch.device("cpu"), second=device, layer=layer)
    model = load_folder(folder, place=split.device_of, dtype=torch.float32).model
    for name, parameter in model.named_parameters():
        assert parameter.device.type == split.device_of(name).type, name
    assert model.output.weight.device.type == device.type
    with torch.no_grad():
        x_BTE = model.run_layers(model.embed(torch.tensor([TOKENS])), stop=layer)
        found = model.head(model.run_layers(x_BTE.to(device), start=layer)).cpu()
    assert_close(found, logits_of(load_folder(folder).model))
