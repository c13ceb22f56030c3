"""The rotary embedding's fields in a config.json: `rope_parameters` as transformers has written
it since version 5, or `rope_theta` and `rope_scaling` before, whose kind was first called `type`.

Knows nothing of how they are computed."""

from math import log
from typing import Any

from noidle.errors import CheckpointError
from tensor_llm.config import LARGEST, ModelConfig
from tensor_llm.families.fields import Fields
from tensor_llm.rope_scaling import RopeKind, RopeScaling

USUAL_THETA = 10_000.0


def read_rope(fields: Fields, context: int, path: object) -> tuple[float, RopeScaling | None]:
    """Base of the wavelengths, and how they are stretched.

    Raises:
        CheckpointError: naming the field that is wrong, or a kind that is not computed.
    """
    # transformers lets the old spelling win where a file has both
    name = "rope_scaling" if fields.get("rope_scaling") else "rope_parameters"
    rope = fields.inner(name)
    theta = rope.number("rope_theta", fields.number("rope_theta", USUAL_THETA))
    for where in (fields, rope):
        if where.number("partial_rotary_factor", 1.0) != 1.0:
            raise where.wrong("partial_rotary_factor", "1: part of a head cannot be left unturned")
    spelling = "rope_type" if rope.get("rope_type") is not None else "type"
    kind = rope.text(spelling, "default")
    if kind == "default":
        return theta, None
    if kind not in set(RopeKind):
        raise rope.wrong(spelling, f"one of default, {', '.join(RopeKind)}")
    try:
        return theta, _scaling(RopeKind(kind), rope, fields, context)
    except ValueError as error:
        raise CheckpointError.of(path, str(error), name) from None


def write_rope(config: ModelConfig) -> dict[str, Any]:
    """In the older spelling, which all versions read."""
    fields: dict[str, Any] = {"rope_theta": config.rope_theta, "rope_scaling": None}
    rope = config.rope
    if rope is None:
        return fields
    scaling: dict[str, Any] = {"rope_type": str(rope.kind), "factor": float(rope.factor)}
    if rope.original_context is not None:
        scaling["original_max_position_embeddings"] = rope.original_context
    if rope.kind is RopeKind.LLAMA3:
        scaling["low_freq_factor"] = float(rope.low_frequency_factor)
        scaling["high_freq_factor"] = float(rope.high_frequency_factor)
    if rope.kind is RopeKind.YARN:
        scaling["beta_fast"], scaling["beta_slow"] = float(rope.beta_fast), float(rope.beta_slow)
        scaling["truncate"] = rope.truncate
        if rope.attention_factor is not None:
            scaling["attention_factor"] = float(rope.attention_factor)
    return fields | {"rope_scaling": scaling}


def _scaling(kind: RopeKind, rope: Fields, fields: Fields, context: int) -> RopeScaling:
    if kind is RopeKind.LINEAR:
        return RopeScaling(kind=kind, factor=rope.number("factor"))
    # some write it beside the object, and where it is absent the context is the original one
    name, most = "original_max_position_embeddings", LARGEST["context"]
    original = rope.whole(name, fields.whole(name, context, most), most)
    if kind is RopeKind.LLAMA3:
        return RopeScaling(
            kind=kind,
            factor=rope.number("factor"),
            original_context=original,
            low_frequency_factor=rope.number("low_freq_factor"),
            high_frequency_factor=rope.number("high_freq_factor"),
        )
    factor = rope.number("factor", context / original)
    return RopeScaling(
        kind=kind,
        factor=factor,
        original_context=original,
        # 0 means the usual, as in transformers
        beta_fast=rope.number("beta_fast", 32.0) or 32.0,
        beta_slow=rope.number("beta_slow", 1.0) or 1.0,
        truncate=rope.flag("truncate", True),
        attention_factor=_attention_factor(rope, factor),
    )


def _attention_factor(rope: Fields, factor: float) -> float | None:
    if rope.get("attention_factor") is not None:
        return rope.number("attention_factor")
    over, under = (rope.number(name, 0.0) for name in ("mscale", "mscale_all_dim"))
    if not over or not under or factor <= 1:
        return None
    return (0.1 * over * log(factor) + 1) / (0.1 * under * log(factor) + 1)
