"""What one run of a template may take. Owns the limits and their words."""

import time
from collections.abc import Callable, Iterable

MAX_STEPS = 3_000_000
"""Parts of a template that are run, loops counted each time around."""
MAX_SECONDS = 1.0
"""Of the thread's own computing time."""
MAX_TEXT = 4 << 20
"""Characters of one text; twice what the longest job says, and what a template adds to it."""
MAX_TEXTS = 32 << 20
"""Characters of all texts that are made on the way."""
MAX_ITEMS = 100_000
"""Entries of one list."""
MAX_LISTS = 2_000_000
"""Entries of all lists that are made on the way."""
MAX_DEPTH = 64
"""Macros within macros."""
MAX_BITS = 4096


class OverBudget(Exception):
    """The template takes more than it may."""


class Budget:
    """Counts down while a template runs."""

    def __init__(self, clock: Callable[[], float] = time.thread_time) -> None:
        self._steps = self._texts = self._lists = 0
        self._clock = clock
        self._end_s = clock() + MAX_SECONDS
        self._depth = 0

    def step(self, weight: int = 1) -> None:
        self._steps += weight
        if self._steps > MAX_STEPS:
            raise OverBudget(f"runs more than {MAX_STEPS} steps")
        if self._clock() > self._end_s:
            raise OverBudget(f"computes longer than {MAX_SECONDS} s")

    def text(self, characters: int) -> None:
        """A text of that length is about to be made."""
        self._texts += characters
        if characters > MAX_TEXT:
            raise OverBudget(f"makes a text of {characters} characters; at most {MAX_TEXT}")
        if self._texts > MAX_TEXTS:
            raise OverBudget(f"makes texts of more than {MAX_TEXTS} characters in all")

    def items(self, count: int) -> None:
        """A list of that length is about to be made."""
        self._lists += count
        if count > MAX_ITEMS:
            raise OverBudget(f"makes a list of {count} entries; at most {MAX_ITEMS}")
        if self._lists > MAX_LISTS:
            raise OverBudget(f"makes lists of more than {MAX_LISTS} entries in all")

    def taken(self, items: Iterable[object]) -> list[object]:
        """All of the items, counted one by one."""
        found: list[object] = []
        for item in items:
            found.append(item)
            self.items(1)
            if len(found) > MAX_ITEMS:
                self.items(len(found))
        return found

    def weigh(self, value: object) -> None:
        """What compares, sorts or writes this value may look at all of it."""
        left, stack = MAX_TEXT, [value]
        while stack:
            one = stack.pop()
            if isinstance(one, str):
                left -= len(one)
            elif isinstance(one, dict):
                self.step(len(one))
                stack += [*one.keys(), *one.values()]
            elif isinstance(one, list | tuple):
                self.step(len(one))
                stack += one
            left -= 1
            if left < 0:
                raise OverBudget(f"handles values of more than {MAX_TEXT} characters at once")

    def number(self, value: object) -> None:
        if isinstance(value, int) and value.bit_length() > MAX_BITS:
            raise OverBudget(f"computes with numbers of more than {MAX_BITS} bits")

    def enter(self) -> None:
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise OverBudget(f"calls itself more than {MAX_DEPTH} deep")

    def leave(self) -> None:
        self._depth -= 1
