"""Models as transformers writes them compute here what they compute there."""

import json

import pytest
import torch
from transformers import AutoModelForCausalLM

from tensor_llm.checkpoint import load_folder
from tensor_llm.generate import generate
from tensor_llm.kernels.library import best_kernels
from tensor_llm.sampling import Sampling
from tensor_llm.serving.kernel_executor import serves
from tensor_llm.serving.opening import open_core
from tensor_llm.serving.request import Request
from tensor_llm.serving.single import outputs_of
from tests.unit.tensor_llm.builders import random_tokens
from tests.unit.tensor_llm.checkpoints import (
    KINDS,
    LLAMA3_ROPE,
    REMOVED,
    edit_json,
    make_theirs,
    write_theirs,
)

PROMPT = random_tokens(40, vocabulary=307)


def logits_of(model, tokens=PROMPT) -> torch.Tensor:
    with torch.no_grad():
        found = model(torch.tensor([tokens]))
    return found if isinstance(found, torch.Tensor) else found.logits


def assert_close(ours: torch.Tensor, theirs: torch.Tensor, tolerance: float = 1e-4) -> None:
    assert ours.shape == theirs.shape
    scale = theirs.abs().max()
    assert ((ours - theirs).abs().max() / scale) < tolerance


def read_theirs(folder):
    """As transformers reads it, in float32; a model that was converted has rounded angles."""
    return AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()


def greedy_of(model, tokens=PROMPT, count=64) -> list[int]:
    """By transformers' own loop and cache."""
    prompt = torch.tensor([tokens])
    found = model.generate(
        prompt,
        attention_mask=torch.ones_like(prompt),
        do_sample=False,
        max_new_tokens=count,
        eos_token_id=None,
        pad_token_id=0,
    )
    return found[0, len(tokens) :].tolist()


@pytest.mark.parametrize("kind", KINDS)
def test_logits_and_greedy_tokens_equal_those_of_transformers(tmp_path, kind):
    theirs = make_theirs(kind)
    ours = load_folder(write_theirs(theirs, tmp_path)).model
    assert_close(logits_of(ours), logits_of(theirs))
    wanted = greedy_of(theirs)
    assert len(set(wanted)) > 8
    assert generate(ours, PROMPT, max_tokens=64) == wanted


@pytest.mark.parametrize("kind", ["llama 3.1", "smollm2", "mistral", "qwen2.5, tied", "qwen3"])
def test_many_small_files_hold_the_same_model(tmp_path, kind):
    theirs = make_theirs(kind)
    write_theirs(theirs, tmp_path, max_shard_size="30KB")
    assert len(list(tmp_path.glob("*.safetensors"))) > 3
    assert not (tmp_path / "model.safetensors").exists()
    assert_close(logits_of(load_folder(tmp_path).model), logits_of(theirs))


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("key", ["type", "rope_type"])
def test_the_older_spelling_of_the_rotary_embedding_means_the_same(tmp_path, kind, key):
    write_theirs(make_theirs(kind), tmp_path)
    wanted = load_folder(tmp_path).config
    rope = json.loads((tmp_path / "config.json").read_text())["rope_parameters"]
    theta, rope_type = rope.pop("rope_theta"), rope.pop("rope_type")
    scaling = rope | {key: rope_type} if rope_type != "default" else None
    edit_json(
        tmp_path / "config.json", rope_parameters=REMOVED, rope_theta=theta, rope_scaling=scaling
    )
    assert load_folder(tmp_path).config == wanted


def test_llama_3_1_as_its_own_config_spells_it(tmp_path):
    write_theirs(make_theirs("llama 3.1"), tmp_path)
    edit_json(
        tmp_path / "config.json",
        rope_parameters=REMOVED,
        rope_theta=500_000.0,
        rope_scaling=LLAMA3_ROPE,
        eos_token_id=[5, 7],
    )
    (tmp_path / "generation_config.json").unlink()
    config = load_folder(tmp_path).config
    assert (config.rope_theta, config.rope.factor, config.eos_tokens) == (500_000.0, 8.0, (5, 7))


def test_without_a_rotary_field_the_usual_base_counts(tmp_path):
    theirs = make_theirs("llama 2")
    edit_json(write_theirs(theirs, tmp_path) / "config.json", rope_parameters=REMOVED)
    assert_close(logits_of(load_folder(tmp_path).model), logits_of(theirs))


@pytest.mark.parametrize("kind", ["llama 3.1", "smollm2", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_computed_in_float32_are_exact(tmp_path, kind, dtype):
    write_theirs(make_theirs(kind).to(dtype), tmp_path)
    ours = load_folder(tmp_path, dtype=torch.float32).model
    assert_close(logits_of(ours), logits_of(read_theirs(tmp_path)))


@pytest.mark.parametrize("kind", ["llama 3.1", "smollm2", "mistral", "qwen2", "qwen3"])
@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_narrow_weights_stay_narrow_and_are_near(tmp_path, kind, dtype):
    write_theirs(make_theirs(kind).to(dtype), tmp_path)
    ours = load_folder(tmp_path).model
    # float16 has no kernels on the CPU
    assert {parameter.dtype for parameter in ours.parameters()} == {torch.bfloat16}
    # random weights are chaotic: each token multiplies the rounding of those before it
    tokens = PROMPT[:4]
    assert_close(logits_of(ours, tokens), logits_of(read_theirs(tmp_path), tokens), 0.1)


# sizes in sixteens, as the kernels want them, still with odd ratios
SIXTEENS = {
    "hidden_size": 96,
    "intermediate_size": 112,
    "head_dim": 16,
    "num_hidden_layers": 2,
}
FIFTEEN_HEADS = {"hidden_size": 240, "num_attention_heads": 15, "num_key_value_heads": 5}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("chunk", [256, 7])
def test_greedy_tokens_of_the_serving_core_equal_those_of_transformers(tmp_path, kind, chunk):
    sizes = SIXTEENS | (FIFTEEN_HEADS if kind == "smollm2" else {})
    if kind.startswith("qwen3"):
        sizes |= {"head_dim": 32}
    if kind == "qwen2 with windows by layer":
        sizes |= {"num_hidden_layers": 3}
    theirs = make_theirs(kind, **sizes)
    loaded = load_folder(write_theirs(theirs, tmp_path))
    core = open_core(loaded, chunk=chunk)
    core.add(Request(tokens=tuple(PROMPT), max_tokens=64, sampling=Sampling()))
    found = [token for output in outputs_of(core) for token in output.tokens]
    assert found == greedy_of(theirs)


def test_these_sizes_are_served_by_the_kernels_where_there_are_any(tmp_path):
    loaded = load_folder(write_theirs(make_theirs("qwen3", **SIXTEENS), tmp_path))
    assert serves(loaded.model) is (best_kernels() is not None)
