"""A pool that batches continuously, in virtual time. Owns how fast runs go beside each other; knows
nothing of who sent them there.

An engine step reads one part of the oldest unread prompt and makes one token for each sequence
whose prompt is read, that one among them if it is its last part, in one pass over the weights: what
the engines of noidle do. Between two changes all steps are alike, so time is counted in steps: a
sequence with 100 tokens to make ends 100 steps on, however long a step takes meanwhile. A start, an
end or a prompt that is read changes the length of a step at once, not at the next step's
beginning."""

import heapq
import math
from collections import deque
from enum import IntEnum
from typing import NamedTuple

from routing.simulation.described import DescribedPool
from routing.simulation.prefixes import Prefixes
from routing.simulation.request import Fate


class _Point(IntEnum):
    JOIN = 0  # the prompt's last part is under way: this step makes the first token
    FIRST = 1  # the first token is there
    LAST = 2  # all are


class _Due(NamedTuple):
    at_step: float
    number: int
    point: _Point
    fate: Fate


class SimulatedPool:
    """`steps` counts engine steps since the beginning; fractions are steps under way."""

    def __init__(self, described: DescribedPool) -> None:
        self.described = described
        self.in_flight = 0
        self.kv_tokens = 0
        self.runs = 0
        # seconds in which anything ran
        self.busy_s = 0.0
        # seconds; when the model is in memory, absent until a job asks for it
        self.ready_s: float | None = None if described.load_s else 0.0
        self._now_s = 0.0
        self._steps = 0.0
        self._unread: deque[Fate] = deque()
        self._read_at_step = math.inf
        # seconds a step spends on the prompt that is read
        self._part_s = 0.0
        self._decoding = 0
        self._due: list[_Due] = []
        self._prefixes = Prefixes(described.cache_tokens, described.kv_tokens)

    @property
    def free(self) -> int:
        return self.described.slots - self.in_flight

    def loaded(self, now_s: float) -> bool:
        """Whether the model is in memory."""
        return self.ready_s is not None and now_s >= self.ready_s

    def fits(self, kv_tokens: int) -> bool:
        room = self.described.kv_tokens - self.kv_tokens
        return self.free > 0 and kv_tokens <= room

    def start(self, fate: Fate) -> None:
        """Takes a run in now; the pool must have been advanced to that time."""
        assert self.fits(fate.request.kv_tokens)
        if self.ready_s is None:
            self.ready_s = self._now_s + self.described.load_s
        self.in_flight += 1
        self.runs += 1
        self.kv_tokens += fate.request.kv_tokens
        self._prefixes.join(fate.request)
        self._unread.append(fate)
        if len(self._unread) == 1:
            self._begin_reading()

    def advance(self, now_s: float) -> None:
        """Moves to a time not behind the next event."""
        if self.in_flight:
            self.busy_s += now_s - self._now_s
            begun_s = max(self._now_s, self.ready_s or 0.0)
            if now_s > begun_s:
                self._steps += (now_s - begun_s) / self._step_s
        self._now_s = now_s

    def next_s(self) -> float:
        """When something happens next; infinite while nothing runs."""
        at_step = min(self._read_at_step, self._due[0].at_step if self._due else math.inf)
        if at_step == math.inf:
            return math.inf
        begun_s = max(self._now_s, self.ready_s or 0.0)
        return begun_s + max(at_step - self._steps, 0.0) * self._step_s

    def happen(self, now_s: float) -> list[Fate]:
        """Moves to the next event, which is at `now_s`, and past all of that step; the runs that
        ended."""
        at_step = min(self._read_at_step, self._due[0].at_step if self._due else math.inf)
        self.advance(now_s)
        # exactly, so that rounding leaves nothing of a step behind
        self._steps = at_step
        if self._read_at_step <= at_step:
            self._finish_reading()
        ended = []
        while self._due and self._due[0].at_step <= at_step:
            due = heapq.heappop(self._due)
            match due.point:
                case _Point.JOIN:
                    self._decoding += 1
                case _Point.FIRST:
                    due.fate.first_s = now_s
                case _Point.LAST:
                    due.fate.finish_s = now_s
                    ended.append(due.fate)
        for fate in ended:
            self.in_flight -= 1
            self._decoding -= 1
            self.kv_tokens -= fate.request.kv_tokens
            self._prefixes.leave(fate.request)
        return ended

    @property
    def _step_s(self) -> float:
        return self.described.step_s_of(self._part_s, self._decoding)

    def _begin_reading(self) -> None:
        fate = self._unread[0]
        fate.reused = self._prefixes.reuse(fate.request)
        tokens = fate.request.prompt - fate.reused
        parts = math.ceil(tokens / self.described.chunk_tokens)
        self._part_s = tokens / parts / self.described.prefill_tokens_per_s
        self._read_at_step = self._steps + parts
        join = self._read_at_step - 1
        number, output = fate.request.number, fate.request.output
        heapq.heappush(self._due, _Due(join, number, _Point.JOIN, fate))
        heapq.heappush(self._due, _Due(join + 1, number, _Point.FIRST, fate))
        heapq.heappush(self._due, _Due(join + output, number, _Point.LAST, fate))

    def _finish_reading(self) -> None:
        self._prefixes.read(self._unread.popleft().request)
        self._part_s, self._read_at_step = 0.0, math.inf
        if self._unread:
            self._begin_reading()
