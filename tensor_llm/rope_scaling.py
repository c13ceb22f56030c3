"""How a rotary embedding is stretched to a context longer than it was trained for: the numbers
of each method. Knows nothing of tensors; `rotary` computes with them."""

import dataclasses
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from noidle.errors import shorten

_LARGEST_CONTEXT = 16_777_216
_LARGEST_NUMBER = 1e6


class RopeKind(StrEnum):
    """The methods that are computed."""

    # every frequency divided by the factor (Chen et al. 2023)
    LINEAR = "linear"
    # long wavelengths divided, short ones kept, between them a mixture (Llama 3.1)
    LLAMA3 = "llama3"
    # the same by the turns a wavelength makes in the context, and warmer attention (YaRN,
    # Peng et al. 2023)
    YARN = "yarn"


@dataclass(frozen=True, slots=True, kw_only=True)
class RopeScaling:
    """
    Raises:
        ValueError: naming the field, its value and what is allowed.
    """

    kind: RopeKind
    factor: float
    # tokens of the context it was trained with; llama3 and yarn
    original_context: int | None = None
    # llama3: wavelengths above original_context / low are divided, below original_context / high
    # kept
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    # yarn: turns in the original context above which a frequency is kept, below which divided
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    # yarn: whether the channels where that begins and ends are rounded to whole ones
    truncate: bool = True
    # yarn: what cosines and sines are multiplied with; absent: 0.1 ln(factor) + 1
    attention_factor: float | None = None

    def __post_init__(self) -> None:
        if self.kind not in set(RopeKind):
            allowed = ", ".join(RopeKind)
            raise ValueError(f"kind = {shorten(self.kind)}: allowed is one of {allowed}")
        object.__setattr__(self, "kind", RopeKind(self.kind))
        for name in _NUMBERS:
            _check_number(name, getattr(self, name))
        if self.attention_factor is not None:
            _check_number("attention_factor", self.attention_factor)
        if type(self.truncate) is not bool:
            raise ValueError(f"truncate = {shorten(self.truncate)}: allowed is true or false")
        self._check_context()

    def _check_context(self) -> None:
        context = self.original_context
        if self.kind is RopeKind.LINEAR and context is None:
            return
        if type(context) is not int or not 1 <= context <= _LARGEST_CONTEXT:
            raise ValueError(
                f"original_context = {shorten(context)}: allowed is an integer of 1 to "
                f"{_LARGEST_CONTEXT}"
            )
        if self.high_frequency_factor <= self.low_frequency_factor:
            raise ValueError(
                f"high_frequency_factor = {self.high_frequency_factor}: allowed is a number "
                f"above low_frequency_factor = {self.low_frequency_factor}"
            )

    @classmethod
    def from_json(cls, data: object) -> "RopeScaling":
        """
        Raises:
            ValueError: no object, or a field is missing, unknown or wrong.
        """
        if not isinstance(data, dict):
            raise ValueError(f"{shorten(data)}: allowed is one object")
        known = {field.name for field in dataclasses.fields(cls)}
        for name in data:
            if name not in known:
                raise ValueError(f"{shorten(name)}: no such field")
        for name in ("kind", "factor"):
            if name not in data:
                raise ValueError(f"{name}: this field is missing")
        return cls(**data)

    def to_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "kind": str(self.kind)}


_NUMBERS = ("factor", "low_frequency_factor", "high_frequency_factor", "beta_fast", "beta_slow")


def _check_number(name: str, value: object) -> None:
    if type(value) not in (int, float) or not 1e-6 <= float(str(value)) <= _LARGEST_NUMBER:
        raise ValueError(f"{name} = {shorten(value)}: allowed is a number of 0.000001 to 1000000")
