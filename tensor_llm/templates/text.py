"""Text that knows which of its characters somebody else wrote.

A chat template puts message contents between special tokens. What is read from a content must
never count as one of those, however the template cuts and joins it, so each character carries
where it came from. Owns the operations on such text; knows nothing of templates."""

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import SupportsIndex

Span = tuple[int, int]
_PLAIN_FORMAT = re.compile(r"%[s%]")


class Foreign(str):
    """A string some of whose characters are foreign: `mask` has 1 for each of those, else 0.

    Whatever Python makes of it that is not defined here is a plain string, so only the functions
    of this module may be let loose on it."""

    __slots__ = ("mask",)
    mask: bytes

    def __new__(cls, text: str, mask: bytes | None = None) -> "Foreign":
        self = super().__new__(cls, text)
        self.mask = b"\1" * len(text) if mask is None else mask
        return self

    def __str__(self) -> str:
        return self

    def __getitem__(self, key: SupportsIndex | slice) -> str:
        mask = self.mask[key] if isinstance(key, slice) else bytes([self.mask[key]])
        return _of(super().__getitem__(key), mask)

    def __iter__(self) -> Iterator[str]:
        return (self[place] for place in range(len(self)))


def mask_of(text: str) -> bytes:
    return text.mask if isinstance(text, Foreign) else bytes(len(text))


def spans_of(text: str) -> list[Span]:
    """Start and end of each foreign stretch, in order."""
    return [match.span() for match in re.finditer(b"\1+", mask_of(text))]


def like(text: str, *sources: object) -> str:
    """A text that was made from the sources: all of it is foreign if any part of them is."""
    return Foreign(text) if any(isinstance(one, Foreign) for one in sources) else text


def join(parts: Sequence[str], between: str = "") -> str:
    text = between.join(parts)
    if not any(isinstance(one, Foreign) for one in (between, *parts)):
        return text
    return _of(text, mask_of(between).join(map(mask_of, parts)))


def pieces(text: str, parts: Iterable[str]) -> list[str]:
    """Parts that lie in `text` one behind the other, as they came from it."""
    found, end = [], 0
    for part in parts:
        start = text.find(part, end)
        assert start >= 0
        end = start + len(part)
        found.append(text[start:end])
    return found


def strip(text: str, chars: str | None = None, *, left: bool = True, right: bool = True) -> str:
    start = len(text) - len(str.lstrip(text, chars)) if left else 0
    stop = len(str.rstrip(text, chars)) if right else len(text)
    return text[start : max(start, stop)]


def replace(text: str, old: str, new: str, count: int = -1) -> str:
    if not old or not any(isinstance(one, Foreign) for one in (text, new)):
        return like(str.replace(text, old, new, count), text, new)
    return join(split(text, old, count), new)


def split(text: str, between: str | None = None, most: int = -1) -> list[str]:
    """Like str.split."""
    if between is None:
        return pieces(text, str.split(text, None, most))
    return _cut(text, str.split(text, between, most), len(between))


def rsplit(text: str, between: str | None = None, most: int = -1) -> list[str]:
    """Like str.rsplit."""
    if between is None:
        return pieces(text, str.rsplit(text, None, most))
    return _cut(text, str.rsplit(text, between, most), len(between))


def splitlines(text: str, keepends: bool = False) -> list[str]:
    whole = _cut(text, str.splitlines(text, True), 0)
    bare = str.splitlines(text, keepends)
    return [line[: len(part)] for line, part in zip(whole, bare, strict=True)]


def percent(form: str, values: object) -> str:
    """`form % values`; where that holds nothing but %s, each value stays what it is.

    Raises:
        TypeError: a value is missing, or is one too many.
    """
    given = values if isinstance(values, tuple) else (values,)
    fields = _PLAIN_FORMAT.findall(form)
    texts = [one for one in given if isinstance(one, str)]
    if len(texts) < len(given) or form.count("%") > "".join(fields).count("%"):
        written = str.__mod__(form, values)
        known = all(one is None or isinstance(one, int | float | str) for one in given)
        return like(written, form, *given) if known else Foreign(written)
    if fields.count("%s") != len(texts):
        raise TypeError(f"{fields.count('%s')} places for {len(texts)} values in {form[:40]!r}")
    rest, literals = iter(texts), split_at(form, _PLAIN_FORMAT)
    parts = [literals[0]]
    for field, literal in zip(fields, literals[1:], strict=True):
        parts += ["%" if field == "%%" else next(rest), literal]
    return join(parts)


def split_at(text: str, pattern: re.Pattern[str]) -> list[str]:
    """What lies between the matches."""
    spans = [match.span() for match in pattern.finditer(text)]
    starts, ends = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    return [text[start:end] for start, end in zip(starts, ends, strict=True)]


def _cut(text: str, parts: list[str], gap: int) -> list[str]:
    found, start = [], 0
    for part in parts:
        found.append(text[start : start + len(part)])
        start += len(part) + gap
    return found


def _of(text: str, mask: bytes) -> str:
    return Foreign(text, mask) if 1 in mask else text
