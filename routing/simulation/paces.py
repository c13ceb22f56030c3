"""How fast a pool's steps were at any time, for one more sequence aboard. Owns that record; knows
nothing of who would come aboard."""

import math

import numpy as np
from numpy.typing import NDArray

from routing.simulation.described import DescribedPool
from routing.simulation.training import BESIDE, LEAST

Floats = NDArray[np.float64]


class Paces:
    """What was noted holds until the next note."""

    def __init__(self, described: DescribedPool) -> None:
        self._described = described
        self._from_s: list[float] = []
        self._decoding: list[int] = []
        self._part_s: list[float] = []
        # how many times longer a step takes because of training
        self._beside: list[float] = []

    def note(self, now_s: float, decoding: int, part_s: float, beside: float) -> None:
        """From now on so many decode, a step reads for so long, and training slows it down."""
        if not self._from_s or self._from_s[-1] != now_s:
            self._from_s.append(now_s)
            self._decoding.append(decoding)
            self._part_s.append(part_s)
            self._beside.append(beside)
        else:
            self._decoding[-1], self._part_s[-1], self._beside[-1] = decoding, part_s, beside

    def training_s(self, end_s: float) -> float:
        """Seconds that a training aboard from the beginning would have had until then by the
        engines' rule, as if every prompt were of a higher class."""
        lengths_s = np.diff(np.append(np.minimum(self._from_s, end_s), end_s))
        decodes = np.where(np.array(self._decoding) > 0, BESIDE, 1.0)
        share = np.where(np.array(self._part_s) > 0, LEAST, decodes)
        return float((lengths_s * share).sum())

    def closed(self) -> "Aboard":
        """All that was noted, as it is looked up."""
        pool = self._described
        from_s, part_s = np.array(self._from_s), np.array(self._part_s)
        decoding, beside = np.array(self._decoding), np.array(self._beside)
        others_s = pool.step_s_per_sequence * decoding
        step_s = np.maximum(part_s, pool.step_s) + others_s + pool.step_s_per_sequence
        alone_s = pool.chunk_tokens / pool.prefill_tokens_per_s
        chunk_s = np.maximum(alone_s, np.where(decoding > 0, pool.step_s, 0.0)) + others_s
        read_s = np.where(part_s > 0, math.inf, chunk_s / pool.chunk_tokens)
        return Aboard(pool, _Clock(from_s, read_s * beside), _Clock(from_s, step_s * beside))


class _Clock:
    """Counts what is done, of which each takes so many seconds from those times on; while they are
    infinite, nothing is."""

    def __init__(self, from_s: Floats, each_s: Floats) -> None:
        self._from_s = from_s
        self._each_s = each_s
        self._done = np.concatenate([[0.0], np.cumsum(np.diff(from_s) / each_s[:-1])])

    def stands(self, at_s: float) -> bool:
        row = np.searchsorted(self._from_s, at_s, side="right") - 1
        return bool(np.isinf(self._each_s[row]))

    def done(self, at_s: Floats) -> Floats:
        row = np.searchsorted(self._from_s, at_s, side="right") - 1
        found: Floats = self._done[row] + (at_s - self._from_s[row]) / self._each_s[row]
        return found

    def when(self, done: Floats) -> Floats:
        """The last moment with so much done."""
        row = np.searchsorted(self._done, done, side="right") - 1
        found: Floats = self._from_s[row] + (done - self._done[row]) * self._each_s[row]
        return found


class Aboard:
    """One more sequence in a pool that was as it was: its prompt is read while the pool read
    nothing in fact, so that it delays no other's."""

    def __init__(self, described: DescribedPool, reading: _Clock, steps: _Clock) -> None:
        self._described = described
        self._reading = reading
        self._steps = steps

    def reads(self, at_s: float) -> bool:
        """Whether the pool read a prompt then."""
        return self._reading.stands(at_s)

    def finish_s(self, begin_s: float, before: float, prompt: Floats, output: Floats) -> Floats:
        """When runs would end that begin then, each for itself; so many tokens of other prompts
        are read before."""
        pool = self._described
        part = prompt - (np.ceil(prompt / pool.chunk_tokens) - 1) * pool.chunk_tokens
        first = self._reading.done(np.array([begin_s]))
        read_s = self._reading.when(first + before + prompt)
        # the last part is read by the step that makes the first token
        longer_s = np.maximum(pool.step_s - part / pool.prefill_tokens_per_s, 0.0)
        first_s: Floats = read_s + longer_s + pool.step_s_per_sequence
        return self._steps.when(self._steps.done(first_s) + output - 1)
