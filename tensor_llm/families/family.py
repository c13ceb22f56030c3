"""The families of models that can be read, and how they differ. Knows nothing of files."""

from dataclasses import dataclass

from tensor_llm.config import ModelConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class Family:
    """What a family's config.json means where it says nothing, and which fields it heeds;
    transformers ignores the others."""

    # its name in ModelConfig.family, and `model_type` in its config.json
    name: str
    # the class in `architectures`
    architecture: str
    # without num_key_value_heads; None: as many as heads
    kv_heads: int | None = None
    # without head_dim; None: hidden_size / num_attention_heads
    head_size: int | None = None
    # without eos_token_id
    eos_tokens: tuple[int, ...] = ()
    # queries, keys and values have biases whatever the config says
    always_biased: bool = False
    # heeds attention_bias, for all four projections
    attention_bias: bool = False
    mlp_bias: bool = False
    query_key_norm: bool = False
    # every layer has a sliding_window; this one where the config does not say
    window: int | None = None
    # heeds use_sliding_window, max_window_layers and layer_types
    layer_windows: bool = False


LLAMA = Family(
    name="llama",
    architecture="LlamaForCausalLM",
    eos_tokens=(2,),
    attention_bias=True,
    mlp_bias=True,
)
MISTRAL = Family(
    name="mistral",
    architecture="MistralForCausalLM",
    kv_heads=8,
    eos_tokens=(2,),
    window=4096,
)
QWEN2 = Family(
    name="qwen2",
    architecture="Qwen2ForCausalLM",
    kv_heads=32,
    always_biased=True,
    layer_windows=True,
)
QWEN3 = Family(
    name="qwen3",
    architecture="Qwen3ForCausalLM",
    kv_heads=32,
    head_size=128,
    attention_bias=True,
    query_key_norm=True,
    layer_windows=True,
)
FAMILIES = {family.name: family for family in (LLAMA, MISTRAL, QWEN2, QWEN3)}


def family_of(config: ModelConfig) -> Family:
    """The one a config came from; a model trained here is spelt as a Llama."""
    return FAMILIES.get(config.family, LLAMA)
