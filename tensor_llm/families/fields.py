"""Fields of a JSON object from outside, each checked as it is taken. Knows nothing of what they
mean; `null` counts as absent, as it does in transformers."""

from collections.abc import Mapping
from typing import Any

from noidle.errors import CheckpointError, shorten


class Fields:
    """The object at `path`, or the one in its field `within`.

    Every method raises CheckpointError, naming file and field, where a value is missing and has
    no default, or is of another kind.
    """

    def __init__(self, data: Mapping[str, Any], path: object, within: str = "") -> None:
        self._data = data
        self.path = path
        self._within = within

    def __contains__(self, name: str) -> bool:
        return name in self._data

    def get(self, name: str) -> Any:
        """As it is; None where absent."""
        return self._data.get(name)

    def wrong(self, name: str, allowed: str) -> CheckpointError:
        """What to raise where the field is not what is allowed."""
        fault = f"{shorten(self.get(name))}: allowed is {allowed}"
        return CheckpointError.of(self.path, fault, self._full(name))

    def whole(self, name: str, default: int | None = None, most: int | None = None) -> int:
        """`most`: of 1 to so many."""
        value = self._value(name, default)
        if type(value) is not int:
            raise self.wrong(name, "an integer")
        if most is not None and not 1 <= value <= most:
            raise self.wrong(name, f"an integer of 1 to {most}")
        return value

    def number(self, name: str, default: float | None = None) -> float:
        value = self._value(name, default)
        if type(value) not in (int, float) or not -1e30 < value < 1e30:
            raise self.wrong(name, "a number")
        return float(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        value = self._value(name, default)
        if type(value) is not bool:
            raise self.wrong(name, "true or false")
        return value

    def text(self, name: str, default: str | None = None) -> str:
        value = self._value(name, default)
        if not isinstance(value, str):
            raise self.wrong(name, "a text")
        return value

    def wholes(self, name: str, most: int = 1024) -> tuple[int, ...]:
        """One integer or a list of them; none where absent."""
        value = self.get(name)
        values = value if isinstance(value, list) else [] if value is None else [value]
        if len(values) > most or any(type(one) is not int for one in values):
            raise self.wrong(name, f"an integer or a list of at most {most}")
        return tuple(values)

    def inner(self, name: str) -> "Fields":
        """The object in a field; an empty one where absent."""
        value = self.get(name)
        if value is None:
            value = {}
        if not isinstance(value, dict):
            raise self.wrong(name, "an object")
        return Fields(value, self.path, self._full(name))

    def _value(self, name: str, default: object) -> Any:
        value = self.get(name)
        if value is None:
            if default is None:
                raise CheckpointError.of(self.path, "this field is missing", self._full(name))
            return default
        return value

    def _full(self, name: str) -> str:
        return f"{self._within}.{name}" if self._within else name
