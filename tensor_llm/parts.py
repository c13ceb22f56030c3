"""Which tensors a decoder of a config has: their names, shapes, and what they are part of.

Knows nothing of torch or files. `model` builds the same; a test holds them equal."""

from collections.abc import Iterator

from tensor_llm.config import ModelConfig


def tensor_shapes(config: ModelConfig) -> dict[str, tuple[int, ...]]:
    """Each tensor once: a tied head goes by the embedding's name."""
    shapes: dict[str, tuple[int, ...]] = {"embedding.weight": (config.vocabulary, config.hidden)}
    for layer in range(config.layers):
        for name, shape in _layer_shapes(config):
            shapes[f"layers.{layer}.{name}"] = shape
    shapes["norm.weight"] = (config.hidden,)
    if not config.tied_head:
        shapes["output.weight"] = (config.vocabulary, config.hidden)
    return shapes


def part_of(name: str) -> str:
    """embedding, attention, mlp, norms or head, by a tensor's name."""
    words = name.split(".")
    if any(word.endswith("norm") for word in words):
        return "norms"
    if words[0] == "output":
        return "head"
    return words[2] if words[0] == "layers" else words[0]


def head_weight(config: ModelConfig) -> str:
    """Name of the tensor that the head reads."""
    return "embedding.weight" if config.tied_head else "output.weight"


def packed_format(name: str, config: ModelConfig, format_: str) -> str | None:
    """In which format a model packed as `format_` keeps a tensor: the layers' matrices in that
    one, the head in 8 bits, for it decides between close tokens; the others as they are."""
    if name == head_weight(config):
        return "int8"
    matrix = name.endswith(".weight") and part_of(name) in ("attention", "mlp")
    return format_ if matrix else None


def _layer_shapes(config: ModelConfig) -> Iterator[tuple[str, tuple[int, ...]]]:
    query_width, kv_width = config.heads * config.head_size, config.kv_heads * config.head_size
    yield "attention_norm.weight", (config.hidden,)
    for name, width in (("query", query_width), ("key", kv_width), ("value", kv_width)):
        yield f"attention.{name}.weight", (width, config.hidden)
        if config.query_key_value_bias:
            yield f"attention.{name}.bias", (width,)
    yield "attention.output.weight", (config.hidden, query_width)
    if config.output_bias:
        yield "attention.output.bias", (config.hidden,)
    if config.query_key_norm:
        yield "attention.query_norm.weight", (config.head_size,)
        yield "attention.key_norm.weight", (config.head_size,)
    yield "mlp_norm.weight", (config.hidden,)
    for name, rows, columns in (
        ("gate", config.mlp, config.hidden),
        ("up", config.mlp, config.hidden),
        ("down", config.hidden, config.mlp),
    ):
        yield f"mlp.{name}.weight", (rows, columns)
        if config.mlp_bias:
            yield f"mlp.{name}.bias", (rows,)
