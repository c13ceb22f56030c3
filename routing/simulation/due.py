"""A run in a simulated pool, and what is due of it. Owns the records, and whose prompt is read
first; knows nothing of how long a step takes."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from routing.simulation.request import Fate

PASSED_BY_STEPS = 8
"""Who waited for so many steps while shorter prompts were read gets every other turn, as in the
engines."""


class Point(IntEnum):
    JOIN = 0  # the prompt's last part is under way: this step makes the first token
    FIRST = 1  # the first token is there
    LAST = 2  # all are


@dataclass(slots=True, eq=False)
class Run:
    fate: Fate
    # the step that makes its first token here; infinite until its prompt's turn comes
    join_step: float = math.inf
    decodes: bool = False
    # it is aboard since then
    since_step: float = 0.0
    # tokens of its prompt that are not read; absent until its first turn
    left: float | None = None
    # how often its prompt had its turn: what was due of an earlier turn never comes
    turns: int = 0
    # it was evicted, and what is due of it never comes
    gone: bool = False


class Due(NamedTuple):
    at_step: float
    # of the request
    number: int
    point: Point
    # so that no two of them are alike: a request may have been here before
    serial: int
    run: Run
    turn: int

    @property
    def void(self) -> bool:
        return self.run.gone or self.turn != self.run.turns


def whose_turn(unread: Sequence[Run], since_step: float, *, after_short: bool) -> Run:
    """The one with the least left of its class; every other turn is of who came first, if it waits
    since that step or longer."""
    short, oldest = min(unread, key=turn), min(unread, key=_age)
    return oldest if after_short and oldest.since_step <= since_step else short


def _age(run: Run) -> tuple[int, int]:
    return run.fate.rank, run.fate.request.number


def turn(run: Run) -> tuple[int, float, int]:
    """Prompts are read by class, then the one with the least left, as in the engines."""
    fate = run.fate
    left = fate.request.prompt + fate.made if run.left is None else run.left
    return fate.rank, left, fate.request.number
