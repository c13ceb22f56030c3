"""How fast a pool's steps were at any time, for one more sequence aboard. Owns that record; knows
nothing of who would come aboard."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from routing.simulation.described import DescribedPool

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

    def closed(self) -> "Aboard":
        """All that was noted, as it is looked up."""
        from_s, beside = np.array(self._from_s), np.array(self._beside)
        step_s = np.maximum(self._part_s, self._described.step_s)
        step_s += self._described.step_s_per_sequence * (np.array(self._decoding) + 1)
        step_s *= beside
        steps = np.concatenate([[0.0], np.cumsum(np.diff(from_s) / step_s[:-1])])
        return Aboard(
            described=self._described,
            from_s=from_s,
            decoding=np.array(self._decoding),
            beside=beside,
            step_s=step_s,
            steps=steps,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Aboard:
    """One more sequence in a pool that was as it was; columns with a row a note."""

    described: DescribedPool
    from_s: Floats
    decoding: NDArray[np.int64]
    beside: Floats
    # seconds of a step with it aboard, and steps made until then
    step_s: Floats
    steps: Floats

    def finish_s(self, begin_s: float, prompt: Floats, output: Floats) -> Floats:
        """When runs would end that begin to be read then, each for itself."""
        pool = self.described
        row = int(np.searchsorted(self.from_s, begin_s, side="right")) - 1
        count, beside = self.decoding.item(row), self.beside.item(row)
        parts = np.ceil(prompt / pool.chunk_tokens)
        part_s = prompt / parts / pool.prefill_tokens_per_s
        others_s = pool.step_s_per_sequence * count
        floor_s = pool.step_s if count else 0.0
        last_s = np.maximum(part_s, pool.step_s) + others_s + pool.step_s_per_sequence
        read_s = (parts - 1) * (np.maximum(part_s, floor_s) + others_s) + last_s
        return self._after(begin_s + read_s * beside, output - 1)

    def _after(self, begin_s: Floats, steps: Floats) -> Floats:
        """When so many steps would have been made from those times on."""
        row = np.searchsorted(self.from_s, begin_s, side="right") - 1
        goal = self.steps[row] + (begin_s - self.from_s[row]) / self.step_s[row] + steps
        row = np.searchsorted(self.steps, goal, side="right") - 1
        found: Floats = self.from_s[row] + (goal - self.steps[row]) * self.step_s[row]
        return found
