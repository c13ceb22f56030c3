"""What config.json and its neighbours say, as well-known models spell it."""

import json

import pytest

from noidle.errors import CheckpointError
from tensor_llm.families.config_file import read_config_file, write_config_file
from tensor_llm.families.fields import Fields
from tensor_llm.families.names import is_derived, their_name
from tensor_llm.families.texts import read_texts
from tensor_llm.rope_scaling import RopeScaling
from tests.unit.tensor_llm.builders import make_config
from tests.unit.tensor_llm.checkpoints import KINDS, make_theirs

LLAMA2_7B = {
    "architectures": ["LlamaForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "initializer_range": 0.02,
    "intermediate_size": 11008,
    "max_position_embeddings": 4096,
    "model_type": "llama",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 32,
    "pretraining_tp": 1,
    "rms_norm_eps": 1e-05,
    "rope_scaling": None,
    "tie_word_embeddings": False,
    "torch_dtype": "float16",
    "vocab_size": 32000,
}
LLAMA31_8B = LLAMA2_7B | {
    "attention_bias": False,
    "eos_token_id": [128001, 128008, 128009],
    "intermediate_size": 14336,
    "max_position_embeddings": 131072,
    "mlp_bias": False,
    "num_key_value_heads": 8,
    "rope_scaling": {
        "factor": 8.0,
        "low_freq_factor": 1.0,
        "high_freq_factor": 4.0,
        "original_max_position_embeddings": 8192,
        "rope_type": "llama3",
    },
    "rope_theta": 500000.0,
    "vocab_size": 128256,
}
SMOLLM2_135M = LLAMA2_7B | {
    "hidden_size": 576,
    "intermediate_size": 1536,
    "is_llama_config": True,
    "max_position_embeddings": 8192,
    "num_attention_heads": 9,
    "num_hidden_layers": 30,
    "num_key_value_heads": 3,
    "rope_interleaved": False,
    "rope_theta": 100000,
    "tie_word_embeddings": True,
    "vocab_size": 49152,
}
MISTRAL_7B = {
    "architectures": ["MistralForCausalLM"],
    "bos_token_id": 1,
    "eos_token_id": 2,
    "hidden_act": "silu",
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "max_position_embeddings": 32768,
    "model_type": "mistral",
    "num_attention_heads": 32,
    "num_hidden_layers": 32,
    "num_key_value_heads": 8,
    "rms_norm_eps": 1e-05,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "tie_word_embeddings": False,
    "vocab_size": 32000,
}
QWEN25_HALF = {
    "architectures": ["Qwen2ForCausalLM"],
    "attention_dropout": 0.0,
    "bos_token_id": 151643,
    "eos_token_id": 151645,
    "hidden_act": "silu",
    "hidden_size": 896,
    "intermediate_size": 4864,
    "max_position_embeddings": 32768,
    "max_window_layers": 21,
    "model_type": "qwen2",
    "num_attention_heads": 14,
    "num_hidden_layers": 24,
    "num_key_value_heads": 2,
    "rms_norm_eps": 1e-06,
    "rope_theta": 1000000.0,
    "sliding_window": 32768,
    "tie_word_embeddings": True,
    "use_sliding_window": False,
    "vocab_size": 151936,
}
QWEN3_06B = QWEN25_HALF | {
    "architectures": ["Qwen3ForCausalLM"],
    "attention_bias": False,
    "head_dim": 128,
    "hidden_size": 1024,
    "intermediate_size": 3072,
    "max_position_embeddings": 40960,
    "max_window_layers": 28,
    "model_type": "qwen3",
    "num_attention_heads": 16,
    "num_hidden_layers": 28,
    "num_key_value_heads": 8,
    "rope_scaling": None,
    "sliding_window": None,
}


def read(data, **changes):
    return read_config_file(data | changes, "config.json")


@pytest.mark.parametrize(
    ("data", "parameters", "family"),
    [
        (LLAMA2_7B, 6_738_415_616, "llama"),
        (LLAMA31_8B, 8_030_261_248, "llama"),
        (SMOLLM2_135M, 134_515_008, "llama"),
        (MISTRAL_7B, 7_241_732_096, "mistral"),
        (QWEN25_HALF, 494_032_768, "qwen2"),
        (QWEN3_06B, 596_049_920, "qwen3"),
    ],
)
def test_well_known_models_have_the_parameters_they_are_known_for(data, parameters, family):
    config = read(data)
    assert (config.parameters, config.family) == (parameters, family)


def test_llama_3_1_is_stretched_and_ends_in_three_ways():
    config = read(LLAMA31_8B)
    assert config.eos_tokens == (128001, 128008, 128009)
    assert config.rope == RopeScaling(kind="llama3", factor=8.0, original_context=8192)
    assert (config.head_size, config.context) == (128, 131072)


def test_mistral_sees_through_a_window_unless_it_says_that_it_does_not():
    assert read(MISTRAL_7B).window == 4096
    assert read(MISTRAL_7B, sliding_window=None).window is None
    without = {name: value for name, value in MISTRAL_7B.items() if name != "sliding_window"}
    assert read(without).window == 4096


def test_qwen_has_a_window_only_where_it_says_so_and_above_a_layer():
    assert read(QWEN25_HALF).window is None
    config = read(QWEN25_HALF, use_sliding_window=True)
    assert [config.window_of(layer) for layer in (0, 20, 21, 23)] == [None, None, 32768, 32768]
    assert read(QWEN25_HALF, use_sliding_window=True, max_window_layers=24).window is None


def test_biases_and_norms_are_as_each_family_has_them():
    def shape(config):
        return (
            config.query_key_value_bias,
            config.output_bias,
            config.mlp_bias,
            config.query_key_norm,
        )

    assert shape(read(LLAMA2_7B)) == (False, False, False, False)
    assert shape(read(LLAMA2_7B, attention_bias=True)) == (True, True, False, False)
    assert shape(read(LLAMA2_7B, mlp_bias=True)) == (False, False, True, False)
    # not heeded by transformers either
    assert shape(read(MISTRAL_7B, attention_bias=True)) == (False, False, False, False)
    assert shape(read(QWEN25_HALF)) == (True, False, False, False)
    assert shape(read(QWEN3_06B)) == (False, False, False, True)
    assert shape(read(QWEN3_06B, attention_bias=True)) == (True, True, False, True)


def test_the_yarn_that_qwen_tells_people_to_add():
    scaling = {"factor": 4.0, "original_max_position_embeddings": 32768, "type": "yarn"}
    assert read(QWEN25_HALF, rope_scaling=scaling).rope == RopeScaling(
        kind="yarn", factor=4.0, original_context=32768
    )


@pytest.mark.parametrize(
    ("generation", "config", "wanted"),
    [
        ({"eos_token_id": [1, 2]}, 3, (1, 2)),
        ({"eos_token_id": 1}, 3, (1,)),
        ({"eos_token_id": None}, 3, (3,)),
        ({}, 3, (3,)),
        (None, [3, 4], (3, 4)),
        (None, None, ()),
    ],
)
def test_end_tokens_are_taken_from_the_generation_config_first(generation, config, wanted):
    fields = None if generation is None else Fields(generation, "generation_config.json")
    found = read_config_file(QWEN25_HALF | {"eos_token_id": config}, "config.json", fields)
    assert found.eos_tokens == wanted


def test_without_any_word_of_it_llama_ends_with_its_usual_token():
    without = {name: value for name, value in LLAMA2_7B.items() if name != "eos_token_id"}
    assert read(without).eos_tokens == (2,)
    assert read(without, vocab_size=2).eos_tokens == ()


@pytest.mark.parametrize("kind", KINDS)
def test_a_config_survives_being_written_and_read(kind):
    config = read(make_theirs(kind).config.to_dict(), architectures=None)
    assert read_config_file(write_config_file(config), "config.json") == config


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"query_key_norm": True}, "query_key_norm"),
        ({"window": 9}, "window"),
        ({"query_key_value_bias": True}, "query_key_value_bias"),
        ({"family": "mistral", "mlp_bias": True}, "mlp_bias"),
        ({"family": "qwen3"}, "query_key_norm"),
    ],
)
def test_what_a_family_has_no_word_for_is_not_written(changes, field):
    with pytest.raises(ValueError, match=f"{field} = .*has no word for it"):
        write_config_file(make_config(**changes))


def test_names_of_tensors():
    assert their_name("layers.3.attention.key_norm.weight") == (
        "model.layers.3.self_attn.k_norm.weight"
    )
    assert their_name("output.weight") == "lm_head.weight"
    assert is_derived("model.layers.12.self_attn.rotary_emb.inv_freq")
    assert not is_derived("model.layers.12.self_attn.q_proj.weight")


def write_texts(folder, **files):
    for name, content in files.items():
        path = folder / {"template": "chat_template.jinja"}.get(name, f"{name}.json")
        path.write_text(content if isinstance(content, str) else json.dumps(content))
    return read_texts(folder)


def test_a_template_of_its_own_file_counts_first(tmp_path):
    texts = write_texts(tmp_path, template="own", tokenizer_config={"chat_template": "other"})
    assert texts.chat_template == "own"


@pytest.mark.parametrize(
    ("template", "wanted"),
    [
        ("text", "text"),
        (None, None),
        ([{"name": "tool_use", "template": "t"}, {"name": "default", "template": "d"}], "d"),
        ([{"name": "tool_use", "template": "t"}], None),
        ([], None),
    ],
)
def test_a_template_may_stand_in_the_tokenizer_config(tmp_path, template, wanted):
    texts = write_texts(tmp_path, tokenizer_config={"chat_template": template})
    assert texts.chat_template == wanted


def test_tokens_are_written_as_texts_or_objects_here_or_there(tmp_path):
    texts = write_texts(
        tmp_path,
        tokenizer_config={"bos_token": {"content": "<s>", "lstrip": False}, "eos_token": None},
        special_tokens_map={"eos_token": "</s>", "bos_token": "other", "unk_token": "<unk>"},
    )
    assert texts.tokens == {"bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    assert read_texts(tmp_path / "nothing").tokens == {}


@pytest.mark.parametrize(
    "fields",
    [{"chat_template": 3}, {"chat_template": {"a": 1}}, {"bos_token": 7}, {"eos_token": ["a"]}],
)
def test_texts_that_are_none_are_refused_by_field(tmp_path, fields):
    with pytest.raises(CheckpointError, match=rf"tokenizer_config\.json: {next(iter(fields))}"):
        write_texts(tmp_path, tokenizer_config=fields)
