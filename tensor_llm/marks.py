"""Where the special tokens of a rendered conversation stand.

Owns finding them by name, outside of what people wrote; knows nothing of vocabularies. What lies
between two of them is text, whatever it says."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tokenizers import AddedToken

Span = tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A special token, with the spaces around it that belong to it."""

    name: str
    start: int
    end: int


class Marks:
    """Of one tokenizer. Like the `tokenizers` package it takes, of names that begin at one place,
    the longest; unlike it, it looks at the text before normalisation always."""

    def __init__(self, special: Sequence[AddedToken]) -> None:
        names = sorted((one.content for one in special), key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, names))) if names else None
        self._left = {one.content for one in special if one.lstrip}
        self._right = {one.content for one in special if one.rstrip}

    def find(self, text: str, foreign: Sequence[Span]) -> Iterator[Mark]:
        """In order, none with a character of its name in a foreign span."""
        if self._pattern is None:
            return
        ends = [0, *(end for _, end in foreign)]
        starts = [*(start for start, _ in foreign), len(text)]
        taken = 0
        for begin, stop in zip(ends, starts, strict=True):
            for match in self._pattern.finditer(text, begin, stop):
                mark = self._with_spaces(text, match, taken)
                taken = mark.end
                yield mark

    def _with_spaces(self, text: str, match: re.Match[str], taken: int) -> Mark:
        start, end = match.span()
        while match[0] in self._left and start > taken and text[start - 1].isspace():
            start -= 1
        while match[0] in self._right and end < len(text) and text[end].isspace():
            end += 1
        return Mark(name=match[0], start=start, end=end)
