"""How transformers names the tensors that this package knows by other names; the supported
families agree on it."""

import re

_THEIRS = {
    "embedding": "model.embed_tokens",
    "norm": "model.norm",
    "output": "lm_head",
    "attention_norm": "input_layernorm",
    "mlp_norm": "post_attention_layernorm",
    "attention.query": "self_attn.q_proj",
    "attention.key": "self_attn.k_proj",
    "attention.value": "self_attn.v_proj",
    "attention.output": "self_attn.o_proj",
    "attention.query_norm": "self_attn.q_norm",
    "attention.key_norm": "self_attn.k_norm",
    "mlp.gate": "mlp.gate_proj",
    "mlp.up": "mlp.up_proj",
    "mlp.down": "mlp.down_proj",
}
HEAD = "lm_head.weight"
EMBEDDING = "model.embed_tokens.weight"
# what old files hold beside the weights, though it follows from the config
_DERIVED = re.compile(r"model\.layers\.\d+\.self_attn\.rotary_emb\.inv_freq")


def their_name(name: str) -> str:
    """transformers' name for our tensor `name`."""
    part, _, leaf = name.rpartition(".")
    if not part.startswith("layers."):
        return f"{_THEIRS[part]}.{leaf}"
    _, layer, within = part.split(".", 2)
    return f"model.layers.{layer}.{_THEIRS[within]}.{leaf}"


def is_derived(name: str) -> bool:
    """Whether a tensor of theirs holds nothing that the config does not say."""
    return _DERIVED.fullmatch(name) is not None
