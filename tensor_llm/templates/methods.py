"""The methods of strings that a template may call, bounded, and keeping whose text is whose.

Each takes the budget and the string before its own arguments."""

import re
import string
from collections.abc import Callable, Iterable
from typing import Any

from jinja2.exceptions import SecurityError

from tensor_llm.templates import text as texts
from tensor_llm.templates.budget import MAX_ITEMS, Budget

LONGEST_SEARCH = 100_000_000
"""Characters that a search from the right may compare: it has no fast way."""
_WIDE = re.compile(r"%[^%a-zA-Z]*(?:\d{3}|\*)")
_ASKING = (
    "startswith", "endswith", "find", "index", "count", "isalnum", "isalpha", "isascii",
    "isdecimal", "isdigit", "islower", "isnumeric", "isspace", "istitle", "isupper",
)  # fmt: skip
_REWRITING = ("upper", "lower", "title", "capitalize", "swapcase", "casefold")


def written(value: object) -> str:
    """The value as a template shows it."""
    if isinstance(value, str):
        return value
    if value is None or isinstance(value, int | float) or hasattr(value, "_undefined_message"):
        return str(value)
    # what lies in a container may be anybody's
    return texts.Foreign(str(value))


def join(budget: Budget, between: str, parts: Iterable[object]) -> str:
    found = [written(part) for part in budget.taken(parts)]
    budget.text(sum(map(len, found)) + len(between) * len(found))
    return texts.join(found, between)


def replace(budget: Budget, text: str, old: str, new: str, count: int | None = -1) -> str:
    places = text.count(old) if count is None or count < 0 else count
    budget.text(len(text) + min(places, len(text) + 1) * len(new))
    return texts.replace(text, old, new, -1 if count is None else count)


def split(budget: Budget, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    _many(budget, text, sep, maxsplit)
    return texts.split(text, sep, maxsplit)


def rsplit(budget: Budget, text: str, sep: str | None = None, maxsplit: int = -1) -> list[str]:
    _many(budget, text, sep, maxsplit)
    _from_the_right(text, sep)
    return texts.rsplit(text, sep, maxsplit)


def splitlines(budget: Budget, text: str, keepends: bool = False) -> list[str]:
    budget.text(len(text))
    budget.items(sum(map(text.count, "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")) + 1)
    return texts.splitlines(text, keepends)


def strip(budget: Budget, text: str, chars: str | None = None) -> str:
    budget.text(len(text))
    return texts.strip(text, chars)


def lstrip(budget: Budget, text: str, chars: str | None = None) -> str:
    budget.text(len(text))
    return texts.strip(text, chars, right=False)


def rstrip(budget: Budget, text: str, chars: str | None = None) -> str:
    budget.text(len(text))
    return texts.strip(text, chars, left=False)


def partition(budget: Budget, text: str, sep: str) -> tuple[str, str, str]:
    budget.text(len(text))
    place = text.find(sep)
    return (text, "", "") if place < 0 else _around(text, place, len(sep))


def rpartition(budget: Budget, text: str, sep: str) -> tuple[str, str, str]:
    budget.text(len(text))
    _from_the_right(text, sep)
    place = text.rfind(sep)
    return ("", "", text) if place < 0 else _around(text, place, len(sep))


def removeprefix(budget: Budget, text: str, prefix: str) -> str:
    budget.text(len(text))
    return text[len(prefix) :] if text.startswith(prefix) else text


def removesuffix(budget: Budget, text: str, suffix: str) -> str:
    budget.text(len(text))
    return text[: len(text) - len(suffix)] if suffix and text.endswith(suffix) else text


def rfind(_budget: Budget, text: str, sub: str) -> int:
    _from_the_right(text, sub)
    return str.rfind(text, sub)


def format_(budget: Budget, text: str, *values: object, **named: object) -> str:
    """Only plain fields: widths and attributes are ways to memory and to Python."""
    parts: list[str] = []
    for number, (literal, field, form, conversion) in enumerate(string.Formatter().parse(text)):
        budget.step()
        parts.append(literal)
        if field is None:
            continue
        if form or conversion or not (field.isidentifier() or field.isdecimal() or not field):
            raise SecurityError(f"format with {field + ':' + (form or '')!r} is not allowed")
        plain = values[int(field or number)] if not field.isidentifier() else named[field]
        parts.append(written(plain))
    return texts.like(join(budget, "", parts), text)


def _asking(name: str) -> Callable[..., Any]:
    method = getattr(str, name)
    return lambda _budget, text, *given: method(text, *given)


def _rewriting(name: str) -> Callable[..., str]:
    method = getattr(str, name)

    def rewrite(budget: Budget, text: str) -> str:
        # one character may become three
        budget.text(len(text))
        return texts.like(method(text), text)

    return rewrite


def _many(budget: Budget, text: str, sep: str | None, most: int) -> None:
    budget.text(len(text))
    count = len(str.split(text, None, MAX_ITEMS)) if sep is None else text.count(sep)
    budget.items(count + 1 if most < 0 else min(count, most) + 1)


def _from_the_right(text: str, sep: str | None) -> None:
    if sep is not None and len(sep) * len(text) > LONGEST_SEARCH:
        raise SecurityError(f"a search for {len(sep)} characters from the right is not allowed")


def _around(text: str, place: int, gap: int) -> tuple[str, str, str]:
    return text[:place], text[place : place + gap], text[place + gap :]


METHODS: dict[str, Callable[..., Any]] = {
    **{name: _asking(name) for name in _ASKING},
    **{name: _rewriting(name) for name in _REWRITING},
    "format": format_,
    "join": join,
    "lstrip": lstrip,
    "partition": partition,
    "removeprefix": removeprefix,
    "removesuffix": removesuffix,
    "replace": replace,
    "rfind": rfind,
    "rpartition": rpartition,
    "rsplit": rsplit,
    "rstrip": rstrip,
    "split": split,
    "splitlines": splitlines,
    "strip": strip,
}


def check_widths(form: str) -> None:
    """
    Raises:
        SecurityError: a %-format writes at a width that could be any.
    """
    if _WIDE.search(form):
        raise SecurityError(f"the format {form[:40]!r} is too wide")
