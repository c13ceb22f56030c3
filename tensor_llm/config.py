"""What a decoder is made of: its sizes, and their JSON form in config.json.

Owns the rules sizes must keep and what follows from them in bytes. Knows nothing of tensors,
so that a process without torch can read a model's facts."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from noidle.errors import CheckpointError, shorten
from noidle.jobs import MAX_HEAD_SIZE, ModelShape
from tensor_llm.rope_scaling import RopeScaling

ARCHITECTURE = "noidle"
FAMILIES = ("noidle", "llama", "mistral", "qwen2", "qwen3")
"""Where a model comes from; decides how it is exported, nothing else."""

_BOOLEANS = ("tied_head", "query_key_value_bias", "output_bias", "mlp_bias", "query_key_norm")
LARGEST = {
    "layers": 1024,
    "hidden": 65_536,
    "heads": 1024,
    "kv_heads": 1024,
    "head_size": MAX_HEAD_SIZE,
    "mlp": 1_048_576,
    "vocabulary": 4_194_304,
    "context": 16_777_216,
}
"""The largest believed value of each field: a hostile config must not exhaust the machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """Sizes of a decoder.

    Raises:
        ValueError: naming the field, its value and what is allowed.
    """

    layers: int
    # width of the residual stream
    hidden: int
    heads: int
    # heads of keys and values; each serves heads / kv_heads query heads
    kv_heads: int
    # width of one head; heads * head_size need not be hidden
    head_size: int
    # width of the SwiGLU's inner layer
    mlp: int
    vocabulary: int
    # longest sequence, in tokens
    context: int
    # the head reads the embedding's weights
    tied_head: bool = True
    # base of the rotary embedding's wavelengths
    rope_theta: float = 10_000.0
    norm_epsilon: float = 1e-5
    # positions a token sees, itself included; None: all before it
    window: int | None = None
    # layers that see everything although window is set
    full_layers: tuple[int, ...] = ()
    # biases of the attention's queries, keys and values; of its output; of the MLP
    query_key_value_bias: bool = False
    output_bias: bool = False
    mlp_bias: bool = False
    # norms of each head's queries and keys, as Qwen3 has them
    query_key_norm: bool = False
    # how the rotary embedding is stretched; None: not at all
    rope: RopeScaling | None = None
    # tokens that end a text; none: the tokenizer's own
    eos_tokens: tuple[int, ...] = ()
    family: str = ARCHITECTURE

    def __post_init__(self) -> None:
        for name, largest in LARGEST.items():
            _check_integer(name, getattr(self, name), largest)
        for name in _BOOLEANS:
            if type(getattr(self, name)) is not bool:
                raise ValueError(
                    f"{name} = {shorten(getattr(self, name))}: allowed is true or false"
                )
        for name in ("rope_theta", "norm_epsilon"):
            _check_positive(name, getattr(self, name))
        if self.window is not None:
            _check_integer("window", self.window, LARGEST["context"])
        _check_integers("full_layers", self.full_layers, self.layers)
        _check_integers("eos_tokens", self.eos_tokens, self.vocabulary)
        if self.rope is not None and not isinstance(self.rope, RopeScaling):
            raise ValueError(f"rope = {shorten(self.rope)}: allowed is a RopeScaling")
        if self.family not in FAMILIES:
            allowed = ", ".join(FAMILIES)
            raise ValueError(f"family = {shorten(self.family)}: allowed is one of {allowed}")
        if self.heads % self.kv_heads:
            raise ValueError(
                f"heads = {self.heads}: allowed is a multiple of kv_heads = {self.kv_heads}"
            )
        if self.head_size % 2:
            raise ValueError(f"head_size = {self.head_size}: allowed is an even number")

    @classmethod
    def of_shape(cls, shape: ModelShape, *, vocabulary: int | None = None) -> "ModelConfig":
        """The config a training job asks for; `vocabulary` where the tokenizer came out with
        fewer tokens than the shape allows."""
        return cls(
            layers=shape.layers,
            hidden=shape.hidden,
            heads=shape.heads,
            kv_heads=shape.kv_heads,
            head_size=shape.hidden // shape.heads,
            mlp=shape.mlp or _round_up(shape.hidden * 8 / 3, 32),
            vocabulary=vocabulary or shape.vocabulary,
            context=shape.context,
            tied_head=shape.tied_head,
        )

    def to_json(self) -> dict[str, Any]:
        data = {"architecture": ARCHITECTURE, **dataclasses.asdict(self)}
        data["rope"] = None if self.rope is None else self.rope.to_json()
        return data

    @classmethod
    def from_json(cls, data: object, path: object = "config.json") -> "ModelConfig":
        """Rebuilds a config; `path` is the file that errors name.

        Raises:
            CheckpointError: naming the field that is missing, unknown or wrong.
        """
        if not isinstance(data, dict):
            raise CheckpointError.of(path, "allowed is one JSON object")
        found = dict(data)
        architecture = found.pop("architecture", None)
        if architecture != ARCHITECTURE:
            fault = f"{shorten(architecture)} is not supported; allowed is {ARCHITECTURE!r}"
            raise CheckpointError.of(path, fault, "architecture")
        _check_names(found, path)
        for name in ("full_layers", "eos_tokens"):
            if isinstance(found.get(name), list):
                found[name] = tuple(found[name])
        try:
            if found.get("rope") is not None:
                found["rope"] = _rope(found["rope"])
            return cls(**found)
        except ValueError as error:
            raise CheckpointError.of(path, str(error)) from None

    @property
    def parameters(self) -> int:
        """How many numbers the weights hold; a tied head counts once."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        biases = self.query_key_value_bias * self.head_size * (self.heads + 2 * self.kv_heads)
        biases += self.output_bias * self.hidden + self.mlp_bias * (2 * self.mlp + self.hidden)
        norms = 2 * self.hidden + self.query_key_norm * 2 * self.head_size
        layer = attention + 3 * self.hidden * self.mlp + norms + biases
        tables = (1 if self.tied_head else 2) * self.vocabulary * self.hidden
        return self.layers * layer + tables + self.hidden

    def window_of(self, layer: int) -> int | None:
        """Positions a token of this layer sees, itself included; None: all before it."""
        return None if layer in self.full_layers else self.window

    def kv_bytes_per_token(self, item_bytes: int = 4) -> int:
        """Bytes of cache one token takes over all layers."""
        return 2 * self.layers * self.kv_heads * self.head_size * item_bytes


def _round_up(value: float, multiple: int) -> int:
    return multiple * -int(-value // multiple)


def _check_integer(name: str, value: object, largest: int) -> None:
    if type(value) is not int or not 1 <= value <= largest:
        raise ValueError(f"{name} = {shorten(value)}: allowed is an integer of 1 to {largest}")


def _check_integers(name: str, values: object, beyond: int) -> None:
    listed = values if isinstance(values, tuple) and len(values) <= 4096 else (None,)
    if any(type(value) is not int or not 0 <= value < beyond for value in listed):
        raise ValueError(f"{name} = {shorten(values)}: allowed are integers of 0 to {beyond - 1}")


def _check_positive(name: str, value: object) -> None:
    if type(value) not in (int, float) or not 0 < float(str(value)) < 1e12:
        raise ValueError(f"{name} = {shorten(value)}: allowed is a number above 0")


def _rope(data: object) -> RopeScaling:
    try:
        return RopeScaling.from_json(data)
    except ValueError as error:
        raise ValueError(f"rope: {error}") from None


def _check_names(found: dict[str, Any], path: object) -> None:
    fields = {field.name: field for field in dataclasses.fields(ModelConfig)}
    for name in found:
        if name not in fields:
            raise CheckpointError.of(path, "no such field", str(name)[:80])
    for name, field in fields.items():
        if name not in found and field.default is dataclasses.MISSING:
            raise CheckpointError.of(path, "this field is missing", name)
