"""Small random models in directories as people have them: written by transformers itself, with a
tokenizer of the family's form and a chat template."""

import json
from pathlib import Path

import torch
from transformers import LlamaConfig, Qwen3Config

from tests.unit.tensor_llm.checkpoints import CLASSES
from tests.unit.tensor_llm.families import family_json

CONTEXT = 512
LONG_CONTEXT = 8192
"""Tokens that no test waits for."""
SIZES = {
    "hidden_size": 60,
    "intermediate_size": 96,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 16,
    "max_position_embeddings": CONTEXT,
    # so that likeliest tokens are far from each other
    "initializer_range": 0.2,
}
LLAMA_CHAT = (
    "{{ bos_token }}{% for message in messages %}<|start_header_id|>{{ message['role'] }}"
    "<|end_header_id|>\n\n{{ message['content'] | trim }}<|eot_id|>{% endfor %}"
    "{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
CHATML = (
    "{% for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 128,
}


def write_llama(folder: Path) -> Path:
    """Of Llama 3.2's form: stretched rotary embedding, in several files of bfloat16."""
    config = LlamaConfig(
        **SIZES, vocab_size=640, rope_scaling=LLAMA3_ROPE, tie_word_embeddings=False
    )
    tokens = {"bos_token": "<|begin_of_text|>", "eos_token": "<|eot_id|>"}
    return _write(
        folder, "llama", config, "llama3", tokens, LLAMA_CHAT, torch.bfloat16, max_shard_size="60KB"
    )


def write_qwen(folder: Path, context: int = CONTEXT) -> Path:
    """Of Qwen3's form: norms of queries and keys, a tied head, float32."""
    sizes = SIZES | {"max_position_embeddings": context}
    config = Qwen3Config(**sizes, vocab_size=640, tie_word_embeddings=True)
    tokens = {"eos_token": "<|im_end|>"}
    return _write(folder, "qwen3", config, "qwen2", tokens, CHATML, torch.float32)


def _write(folder, family, config, tokenizer, tokens, template, dtype, **options) -> Path:
    torch.manual_seed(3)
    model = CLASSES[family][1](config).eval().to(dtype)
    model.generation_config.eos_token_id = None
    model.save_pretrained(folder, **options)
    text = family_json(tokenizer)
    (folder / "tokenizer.json").write_text(text)
    about = {"tokenizer_class": "PreTrainedTokenizerFast", "chat_template": template, **tokens}
    (folder / "tokenizer_config.json").write_text(json.dumps(about))
    return folder
