import json

import pytest
import torch
from safetensors.torch import load_file, save_file

from noidle.errors import CheckpointError
from tensor_llm.checkpoint import load_model, load_state, save_model
from tensor_llm.split import LayerSplit
from tensor_llm.store import ModelStore
from tests.unit.tensor_llm.builders import make_model, make_tokenizer, random_tokens

TOKENS = torch.tensor([random_tokens(20)])


@pytest.fixture
def store(tmp_path) -> ModelStore:
    return ModelStore(tmp_path)


def save(store: ModelStore, **changes: object):
    model = make_model(**({"vocabulary": 300} | changes))
    save_model(
        store, "mini", "r1", model=model, tokenizer=make_tokenizer(), step=7, bytes_per_token=2.5
    )
    store.set_current("mini", "r1")
    return model


@pytest.mark.parametrize("tied", [True, False])
def test_saved_and_loaded_give_equal_logits(store, tied):
    model = save(store, tied_head=tied, heads=6, kv_heads=3, head_size=10)
    loaded = load_model(store, "mini")
    with torch.no_grad():
        assert torch.equal(loaded.model(TOKENS), model(TOKENS))
    assert loaded.model.config == model.config
    assert (loaded.name, loaded.revision) == ("mini", "r1")
    assert loaded.info == store.info("mini")
    assert (loaded.model.output.weight is loaded.model.embedding.weight) is tied


def test_the_file_holds_a_tied_head_once(store):
    save(store)
    assert "output.weight" not in load_file(store.directory("mini") / "model.safetensors")


def test_it_loads_in_the_type_asked_for(store):
    save(store)
    for wanted in (torch.bfloat16, torch.float16):
        model = load_model(store, "mini", dtype=wanted).model
        assert {parameter.dtype for parameter in model.parameters()} == {wanted}


def test_a_checkpoint_in_a_narrower_type_survives(store):
    model = make_model(vocabulary=300).bfloat16()
    save_model(
        store, "mini", "r1", model=model, tokenizer=make_tokenizer(), step=0, bytes_per_token=1.0
    )
    loaded = load_model(store, "mini", "r1", dtype=None).model
    assert loaded.embedding.weight.dtype == torch.bfloat16
    with torch.no_grad():
        assert torch.equal(loaded(TOKENS), model(TOKENS))


@pytest.mark.parametrize("tied", [True, False])
def test_each_part_loads_straight_to_its_device(store, tied):
    save(store, layers=3, tied_head=tied)
    split = LayerSplit(first=torch.device("cpu"), second=torch.device("meta"), layer=1)
    model = load_model(store, "mini", place=split.device_of).model
    for name, parameter in model.named_parameters():
        wanted = "cpu" if name.startswith(("embedding", "layers.0")) else "meta"
        assert parameter.device.type == wanted, name
    assert model.output.weight.device.type == "meta"


def test_a_head_on_another_device_is_still_saved_once(store):
    model = make_model(vocabulary=300)
    model.output.weight = torch.nn.Parameter(model.embedding.weight.detach().clone())
    save_model(
        store, "mini", "r1", model=model, tokenizer=make_tokenizer(), step=0, bytes_per_token=1.0
    )
    with torch.no_grad():
        assert torch.equal(load_model(store, "mini", "r1").model(TOKENS), model(TOKENS))


def test_a_model_saved_without_training_state_has_none(store):
    save(store)
    assert load_state(store, "mini", "r1") is None


def spoil_tensors(folder, change):
    path = folder / "model.safetensors"
    tensors = {name: tensor.clone() for name, tensor in load_file(path).items()}
    change(tensors)
    save_file(tensors, path)


def truncate(folder, file, keep):
    path = folder / file
    path.write_bytes(path.read_bytes()[:keep])


def edit_config(folder, **fields):
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | fields))


KEY = "layers.1.attention.key.weight"
SPOILT = {
    "missing tensor": (
        lambda f: spoil_tensors(f, lambda t: t.pop(KEY)),
        rf"model\.safetensors: {KEY}: this tensor is missing",
    ),
    "extra tensor": (
        lambda f: spoil_tensors(f, lambda t: t.update(bias=torch.zeros(2))),
        r"model\.safetensors: bias: the config has no such tensor",
    ),
    "transposed tensor": (
        lambda f: spoil_tensors(f, lambda t: t.update({KEY: t[KEY].T.contiguous()})),
        rf"{KEY}: shape \(32, 16\): the config wants \(16, 32\)",
    ),
    "integers": (
        lambda f: spoil_tensors(f, lambda t: t.update({KEY: t[KEY].int()})),
        rf"{KEY}: type I32: allowed is F32, BF16, F16",
    ),
    "cut weights": (
        lambda f: truncate(f, "model.safetensors", 5000),
        r"model\.safetensors: embedding\.weight: cannot be read: it ends at byte",
    ),
    "cut config": (lambda f: truncate(f, "config.json", 20), r"config\.json: is not JSON"),
    "cut tokenizer": (lambda f: truncate(f, "tokenizer.json", 50), r"tokenizer\.json: is no"),
    "no weights": (lambda f: (f / "model.safetensors").unlink(), r"model\.safetensors: is missing"),
    "no config": (lambda f: (f / "config.json").unlink(), r"config\.json: cannot be read"),
    "no tokenizer": (lambda f: (f / "tokenizer.json").unlink(), r"tokenizer\.json: cannot be read"),
    "no facts": (lambda f: (f / "checkpoint.json").unlink(), r"checkpoint\.json: cannot be read"),
    "another layer": (
        lambda f: edit_config(f, layers=3),
        r"layers\.2\.attention\.key\.weight: this tensor is missing",
    ),
    "absurd sizes": (
        lambda f: edit_config(f, hidden=65_536, mlp=1_048_576, vocabulary=4_000_000),
        r"embedding\.weight: shape \(300, 32\): the config wants \(4000000, 65536\)",
    ),
    "smaller vocabulary": (
        lambda f: (f / "tokenizer.json").write_text(make_tokenizer(301).to_json()),
        r"tokenizer\.json: vocabulary: 301 tokens: the config allows 300",
    ),
}


@pytest.mark.parametrize("kind", SPOILT)
def test_a_malformed_checkpoint_is_refused_by_file_and_part(store, kind):
    save(store)
    spoil, wanted = SPOILT[kind]
    spoil(store.directory("mini"))
    with pytest.raises(CheckpointError, match=wanted):
        load_model(store, "mini")
