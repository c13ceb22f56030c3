"""From a family's config.json to this package's config and back.

Knows nothing of tensors. Unknown fields are ignored, as transformers ignores them, but for those
that would change what the model computes."""

from collections.abc import Mapping
from typing import Any

from noidle.errors import CheckpointError, shorten
from tensor_llm.config import LARGEST, ModelConfig
from tensor_llm.families.family import FAMILIES, Family, family_of
from tensor_llm.families.fields import Fields
from tensor_llm.families.rope import read_rope, write_rope

_SLIDING, _FULL = "sliding_attention", "full_attention"
_SAME_AS_SILU = ("silu", "swish")


def read_config_file(
    data: Mapping[str, Any], path: object, generation: Fields | None = None
) -> ModelConfig:
    """`path` is the file that errors name; `generation` the fields of generation_config.json,
    whose eos_token_id counts before the config's.

    Raises:
        CheckpointError: the family is not supported, or a field is missing or wrong.
    """
    fields = Fields(data, path)
    family = _family(fields)
    _refuse_other_maths(fields)
    # bounded first, for lists and quotients follow from them
    heads = fields.whole("num_attention_heads", most=LARGEST["heads"])
    layers = fields.whole("num_hidden_layers", most=LARGEST["layers"])
    context = fields.whole("max_position_embeddings", most=LARGEST["context"])
    theta, rope = read_rope(fields, context, path)
    window, full_layers = _windows(family, fields, layers)
    biased = family.attention_bias and fields.flag("attention_bias", False)
    try:
        return ModelConfig(
            layers=layers,
            hidden=fields.whole("hidden_size"),
            heads=heads,
            kv_heads=_kv_heads(family, fields, heads),
            head_size=_head_size(family, fields, heads),
            mlp=fields.whole("intermediate_size"),
            vocabulary=fields.whole("vocab_size"),
            context=context,
            tied_head=fields.flag("tie_word_embeddings", False),
            rope_theta=theta,
            norm_epsilon=fields.number("rms_norm_eps", 1e-6),
            window=window,
            full_layers=full_layers,
            query_key_value_bias=biased or family.always_biased,
            output_bias=biased,
            mlp_bias=family.mlp_bias and fields.flag("mlp_bias", False),
            query_key_norm=family.query_key_norm,
            rope=rope,
            eos_tokens=_eos_tokens(family, fields, generation),
            family=family.name,
        )
    except ValueError as error:
        name, _, rest = str(error).partition(" = ")
        raise CheckpointError.of(path, rest, _THEIR_NAMES.get(name, name)) from None


def write_config_file(config: ModelConfig) -> dict[str, Any]:
    """
    Raises:
        ValueError: the family has no words for this config.
    """
    family = family_of(config)
    data: dict[str, Any] = {
        "architectures": [family.architecture],
        "model_type": family.name,
        "hidden_act": "silu",
        "hidden_size": config.hidden,
        "intermediate_size": config.mlp,
        "num_hidden_layers": config.layers,
        "num_attention_heads": config.heads,
        "num_key_value_heads": config.kv_heads,
        "head_dim": config.head_size,
        "vocab_size": config.vocabulary,
        "max_position_embeddings": config.context,
        "rms_norm_eps": config.norm_epsilon,
        "tie_word_embeddings": config.tied_head,
        "bos_token_id": None,
        "eos_token_id": list(config.eos_tokens) or None,
        **write_rope(config),
    }
    if family.attention_bias:
        data["attention_bias"] = config.output_bias
    if family.mlp_bias:
        data["mlp_bias"] = config.mlp_bias
    data |= _window_fields(family, config)
    _check_same(config, family, read_config_file(data, "config.json"))
    return data


_THEIR_NAMES = {
    "layers": "num_hidden_layers",
    "hidden": "hidden_size",
    "heads": "num_attention_heads",
    "kv_heads": "num_key_value_heads",
    "head_size": "head_dim",
    "mlp": "intermediate_size",
    "vocabulary": "vocab_size",
    "context": "max_position_embeddings",
    "norm_epsilon": "rms_norm_eps",
    "window": "sliding_window",
    "eos_tokens": "eos_token_id",
}


def _family(fields: Fields) -> Family:
    names = fields.get("architectures")
    if names is not None and not isinstance(names, list):
        raise fields.wrong("architectures", "a list of texts")
    field = "architectures" if names else "model_type"
    wanted = names[0] if names else fields.get("model_type")
    for family in FAMILIES.values():
        if wanted == (family.architecture if names else family.name):
            return family
    known = ", ".join(family.architecture if names else family.name for family in FAMILIES.values())
    raise CheckpointError.of(
        fields.path, f"{shorten(wanted)} is not supported; allowed is one of {known}", field
    )


def _refuse_other_maths(fields: Fields) -> None:
    if fields.text("hidden_act", "silu") not in _SAME_AS_SILU:
        raise fields.wrong("hidden_act", "'silu'")
    if fields.get("quantization_config") is not None:
        raise fields.wrong("quantization_config", "none: plain weights, to be packed here")


def _kv_heads(family: Family, fields: Fields, heads: int) -> int:
    if "num_key_value_heads" not in fields and family.kv_heads is not None:
        return family.kv_heads
    return fields.whole("num_key_value_heads", heads)


def _head_size(family: Family, fields: Fields, heads: int) -> int:
    if "head_dim" not in fields and family.head_size is not None:
        return family.head_size
    return fields.whole("head_dim", fields.whole("hidden_size") // heads)


def _eos_tokens(family: Family, fields: Fields, generation: Fields | None) -> tuple[int, ...]:
    if generation is not None and generation.get("eos_token_id") is not None:
        return generation.wholes("eos_token_id")
    if "eos_token_id" in fields:
        return fields.wholes("eos_token_id")
    # a vocabulary too small for the usual token has none
    return tuple(token for token in family.eos_tokens if token < fields.whole("vocab_size"))


def _windows(family: Family, fields: Fields, layers: int) -> tuple[int | None, tuple[int, ...]]:
    if family.window is not None:
        written = "sliding_window" in fields
        absent = written and fields.get("sliding_window") is None
        return (None if absent else fields.whole("sliding_window", family.window)), ()
    if not family.layer_windows:
        return None, ()
    window = None
    if fields.flag("use_sliding_window", False) and (
        "sliding_window" not in fields or fields.get("sliding_window") is not None
    ):
        window = fields.whole("sliding_window", 4096)
    full = _full_layers(fields, layers, window)
    if window is None or len(full) == layers:
        return None, ()
    return window, full


def _full_layers(fields: Fields, layers: int, window: int | None) -> tuple[int, ...]:
    types = fields.get("layer_types")
    if types is None:
        return tuple(range(min(layers, max(0, fields.whole("max_window_layers", 28)))))
    if (
        not isinstance(types, list)
        or len(types) != layers
        or not set(map(str, types))
        <= {
            _SLIDING,
            _FULL,
        }
    ):
        raise fields.wrong("layer_types", f"{layers} texts, each {_FULL} or {_SLIDING}")
    if window is None and _SLIDING in types:
        raise fields.wrong("layer_types", f"{_FULL} only, since there is no sliding_window")
    return tuple(index for index, kind in enumerate(types) if kind == _FULL)


def _window_fields(family: Family, config: ModelConfig) -> dict[str, Any]:
    if family.window is not None:
        return {"sliding_window": config.window}
    if not family.layer_windows:
        return {}
    kinds = [_FULL if config.window_of(n) is None else _SLIDING for n in range(config.layers)]
    return {
        "use_sliding_window": config.window is not None,
        "sliding_window": config.window,
        "max_window_layers": len(config.full_layers),
        "layer_types": kinds,
    }


def _check_same(config: ModelConfig, family: Family, again: ModelConfig) -> None:
    ours, theirs = config.to_json(), again.to_json()
    for name, value in ours.items():
        if name != "family" and value != theirs[name]:
            raise ValueError(f"{name} = {shorten(value)}: {family.architecture} has no word for it")
