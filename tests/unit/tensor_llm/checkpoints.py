"""Small random models of every family, written by transformers itself."""

import copy
import json
import math
import os
from pathlib import Path

import torch

# nothing here may ask the network
os.environ.setdefault("HF_HUB_OFFLINE", "1")

import transformers
from transformers import (
    LlamaConfig,
    LlamaForCausalLM,
    MistralConfig,
    MistralForCausalLM,
    Qwen2Config,
    Qwen2ForCausalLM,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from tests.unit.tensor_llm.builders import make_tokenizer

transformers.utils.logging.set_verbosity_error()
transformers.utils.logging.disable_progress_bar()

CLASSES = {
    "llama": (LlamaConfig, LlamaForCausalLM),
    "mistral": (MistralConfig, MistralForCausalLM),
    "qwen2": (Qwen2Config, Qwen2ForCausalLM),
    "qwen3": (Qwen3Config, Qwen3ForCausalLM),
}
SIZES = {
    "hidden_size": 48,
    "intermediate_size": 80,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "vocab_size": 307,
    "max_position_embeddings": 160,
    "initializer_range": 0.1,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
YARN_ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 40}
KINDS = {
    "llama 2": ("llama", {"num_key_value_heads": 6}),
    "llama 3": ("llama", {"rope_theta": 500_000.0}),
    "llama 3.1": ("llama", {"rope_theta": 500_000.0, "rope_scaling": LLAMA3_ROPE}),
    "llama 3.2, tied": ("llama", {"rope_scaling": LLAMA3_ROPE, "tie_word_embeddings": True}),
    "llama with every bias": ("llama", {"attention_bias": True, "mlp_bias": True}),
    "llama stretched evenly": ("llama", {"rope_scaling": {"rope_type": "linear", "factor": 3.0}}),
    "llama, yarn": ("llama", {"rope_scaling": YARN_ROPE}),
    "llama, yarn with its own numbers": (
        "llama",
        {
            "rope_scaling": YARN_ROPE
            | {"beta_fast": 8.0, "beta_slow": 2.0, "attention_factor": 1.3, "truncate": False}
        },
    ),
    "llama, yarn as DeepSeek writes it": (
        "llama",
        {"rope_scaling": YARN_ROPE | {"mscale": 0.8, "mscale_all_dim": 0.5}},
    ),
    "smollm2": (
        "llama",
        {
            "hidden_size": 60,
            "num_attention_heads": 15,
            "num_key_value_heads": 5,
            "tie_word_embeddings": True,
            "rope_theta": 100_000.0,
        },
    ),
    "mistral": ("mistral", {"sliding_window": 11}),
    "mistral, wide heads, no window": ("mistral", {"sliding_window": None, "head_dim": 14}),
    "qwen2": ("qwen2", {}),
    "qwen2.5, tied": ("qwen2", {"tie_word_embeddings": True, "rope_theta": 1_000_000.0}),
    "qwen2 with windows above a layer": (
        "qwen2",
        {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1},
    ),
    "qwen2 with windows by layer": (
        "qwen2",
        {
            "use_sliding_window": True,
            "sliding_window": 7,
            "layer_types": ["sliding_attention", "full_attention", "sliding_attention"],
        },
    ),
    "qwen3": ("qwen3", {"head_dim": 12}),
    "qwen3, tied, with biases": (
        "qwen3",
        {"head_dim": 10, "attention_bias": True, "tie_word_embeddings": True},
    ),
}


def make_theirs(kind: str, seed: int = 1, **changes: object):
    """A model of transformers whose every weight, norms and biases included, is random."""
    family, options = KINDS[kind]
    config_class, model_class = CLASSES[family]
    # a config writes into what it is given
    config = config_class(**copy.deepcopy(SIZES | options | changes))
    model = model_class(config).eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator)
            if name.endswith("bias"):
                parameter.copy_(0.3 * noise)
            elif parameter.dim() == 1:
                parameter.copy_(1 + 0.3 * noise)
            else:
                parameter.copy_(2.0 * noise / math.sqrt(parameter.shape[1]))
    return model


def write_theirs(model, folder: Path, **options: object) -> Path:
    """As transformers writes it, with a tokenizer beside it."""
    model.save_pretrained(folder, **options)
    (folder / "tokenizer.json").write_text(make_tokenizer().to_json())
    return folder


REMOVED = object()


def edit_json(path: Path, **fields: object) -> None:
    """Sets fields, or removes them."""
    data = json.loads(path.read_text()) | fields
    data = {name: value for name, value in data.items() if value is not REMOVED}
    path.write_text(json.dumps(data))
