"""What a decoder is made of: its sizes, and their JSON form in config.json.

Owns the rules sizes must keep and what follows from them in bytes. Knows nothing of tensors,
so that a process without torch can read a model's facts."""

import dataclasses
from dataclasses import dataclass
from typing import Any

from noidle.errors import CheckpointError, shorten
from noidle.jobs import MAX_HEAD_SIZE, ModelShape

ARCHITECTURE = "noidle"

# field: the largest value that is believed; a hostile config must not exhaust the machine
_LARGEST = {
    "layers": 1024,
    "hidden": 65_536,
    "heads": 1024,
    "kv_heads": 1024,
    "head_size": MAX_HEAD_SIZE,
    "mlp": 1_048_576,
    "vocabulary": 4_194_304,
    "context": 16_777_216,
}


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

    def __post_init__(self) -> None:
        for name, largest in _LARGEST.items():
            _check_integer(name, getattr(self, name), largest)
        if type(self.tied_head) is not bool:
            raise ValueError(f"tied_head = {shorten(self.tied_head)}: allowed is true or false")
        for name in ("rope_theta", "norm_epsilon"):
            _check_positive(name, getattr(self, name))
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
        return {"architecture": ARCHITECTURE, **dataclasses.asdict(self)}

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
        if isinstance(found.get("full_layers"), list):
            found["full_layers"] = tuple(found["full_layers"])
        try:
            return cls(**found)
        except ValueError as error:
            raise CheckpointError.of(path, str(error)) from None

    @property
    def parameters(self) -> int:
        """How many numbers the weights hold; a tied head counts once."""
        attention = 2 * self.hidden * self.head_size * (self.heads + self.kv_heads)
        layer = attention + 3 * self.hidden * self.mlp + 2 * self.hidden
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


def _check_positive(name: str, value: object) -> None:
    if type(value) not in (int, float) or not 0 < float(str(value)) < 1e12:
        raise ValueError(f"{name} = {shorten(value)}: allowed is a number above 0")


def _check_names(found: dict[str, Any], path: object) -> None:
    fields = {field.name: field for field in dataclasses.fields(ModelConfig)}
    for name in found:
        if name not in fields:
            raise CheckpointError.of(path, "no such field", str(name)[:80])
    for name, field in fields.items():
        if name not in found and field.default is dataclasses.MISSING:
            raise CheckpointError.of(path, "this field is missing", name)
