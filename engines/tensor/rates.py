"""How fast the engine is, and how sure that is, learnt from what it does.

Owns the running measurements and the decision when they are worth telling; knows nothing of
who uses them."""

import math
from collections.abc import Callable

from engines.protocol import RatesMeasured

MEMORY = 0.97
"""Weight that an older measurement keeps with each new one."""
TELL_EVERY_S = 1.0
LONG_PART = 64
"""Tokens read at once, from which on a prompt's speed is that of long prompts."""
NEWS = 0.02
"""Change worth telling, as a share."""
HIDDEN = 1.25
"""So many times a decode step, at most, takes one behind which a part of a prompt is hidden."""
LEAST = 2.5
"""Measurements, older ones counting less, before they tell how far they scatter."""
_ERRORS = ("prefill_error", "step_error")


class Speed:
    """Units a second, heavier measurements counting more."""

    def __init__(self) -> None:
        self._n = self._units = self._spent_s = 0.0
        self._squares = self._products = self._spent_squares = 0.0

    def add(self, units: float, spent_s: float) -> None:
        self._n = self._n * MEMORY + 1
        self._units = self._units * MEMORY + units
        self._spent_s = self._spent_s * MEMORY + spent_s
        self._squares = self._squares * MEMORY + units * units
        self._products = self._products * MEMORY + units * spent_s
        self._spent_squares = self._spent_squares * MEMORY + spent_s * spent_s

    @property
    def per_s(self) -> float | None:
        return self._units / self._spent_s if self._spent_s > 0 else None

    @property
    def error(self) -> float | None:
        """Standard error of the time a unit takes, by that time; None before the third
        measurement."""
        if self._n < LEAST or self._spent_s <= 0:
            return None
        unit_s = self._spent_s / self._units
        # squared, what the measurements differ by from what the mean predicts
        rest = self._spent_squares - 2 * unit_s * self._products + unit_s**2 * self._squares
        return math.sqrt(max(0.0, rest) * self._n / (self._n - 1)) / self._spent_s


class Line:
    """Least squares of time over batch size, older points fading: step_s + slope * batch."""

    def __init__(self) -> None:
        self._n = self._x = self._y = self._xx = self._xy = self._yy = 0.0

    def add(self, batch: int, spent_s: float) -> None:
        self._n = self._n * MEMORY + 1
        self._x = self._x * MEMORY + batch
        self._y = self._y * MEMORY + spent_s
        self._xx = self._xx * MEMORY + batch * batch
        self._xy = self._xy * MEMORY + batch * spent_s
        self._yy = self._yy * MEMORY + spent_s * spent_s

    def fit(self) -> tuple[float, float] | None:
        """Constant and slope, neither negative; None before the first point."""
        if self._n == 0:
            return None
        mean_x, mean_y = self._x / self._n, self._y / self._n
        spread = self._xx / self._n - mean_x**2
        # while all batches were of one size nothing is known of the slope
        slope = 0.0
        if spread > 1e-3 * mean_x**2:
            slope = max(0.0, (self._xy / self._n - mean_x * mean_y) / spread)
        constant = mean_y - slope * mean_x
        return (constant, slope) if constant >= 0 else (0.0, mean_y / mean_x)

    @property
    def error(self) -> float | None:
        """Standard error of a step of mean size, by its time; None before the third point."""
        found = self.fit()
        if self._n < LEAST or found is None or self._y <= 0:
            return None
        constant, slope = found
        rest = (
            self._yy
            + constant**2 * self._n
            + slope**2 * self._xx
            - 2 * constant * self._y
            - 2 * slope * self._xy
            + 2 * constant * slope * self._x
        )
        # two were fitted
        return math.sqrt(max(0.0, rest) * self._n / (self._n - 2)) / self._y


class Reading:
    """Speed of reading prompts. A short part takes as long as the device's overhead, which
    says little of long ones: it counts only until a long one was read."""

    def __init__(self) -> None:
        self._short, self._long = Speed(), Speed()

    def add(self, tokens: int, spent_s: float) -> None:
        (self._long if tokens >= LONG_PART else self._short).add(tokens, spent_s)

    @property
    def per_s(self) -> float | None:
        return self._long.per_s or self._short.per_s

    @property
    def error(self) -> float | None:
        return (self._short if self._long.per_s is None else self._long).error


class RateBook:
    """All that is measured; `news` is worth an event about once a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.prefill, self.load, self.train = Reading(), Speed(), Speed()
        self.decode = Line()
        # tokens of prompts that are read in a step beside which others decode
        self.chunk_tokens: int | None = None
        self._told = RatesMeasured()
        self._told_at_s = -TELL_EVERY_S

    def step(self, decoded: int, read: int, spent_s: float) -> None:
        """One step of a model: so many sequences got a token, so many tokens of prompts were
        read. Both take one pass over the weights: the longer of them counts, and what each
        sequence takes beside it."""
        if not read:
            if decoded:
                self.decode.add(decoded, spent_s)
            return
        if decoded:
            line = self.decode.fit()
            if line is None:
                return
            step_s, per_sequence_s = line
            spent_s -= per_sequence_s * decoded
            if self._hidden(read, step_s, spent_s):
                return
        if spent_s > 0:
            self.prefill.add(read, spent_s)

    def _hidden(self, read: int, step_s: float, spent_s: float) -> bool:
        """The pass over the weights took longer than reading: that tells nothing of reading."""
        known = self.prefill.per_s
        return known is not None and read / known < step_s and spent_s <= HIDDEN * step_s

    @property
    def untold(self) -> bool:
        """There is news, to be told when its time has come."""
        return _differ(self._measured(), self._told)

    def news(self) -> RatesMeasured | None:
        now_s = self._clock()
        if now_s - self._told_at_s < TELL_EVERY_S:
            return None
        rates = self._measured()
        if not _differ(rates, self._told):
            return None
        self._told, self._told_at_s = rates, now_s
        return rates

    def _measured(self) -> RatesMeasured:
        step = self.decode.fit()
        return RatesMeasured(
            prefill_tokens_per_s=self.prefill.per_s,
            step_s=step[0] if step else None,
            step_s_per_sequence=step[1] if step else None,
            chunk_tokens=self.chunk_tokens,
            prefill_error=self.prefill.error,
            step_error=self.decode.error,
            load_bytes_per_s=self.load.per_s,
            train_tokens_per_s=self.train.per_s,
        )


def _differ(new: RatesMeasured, old: RatesMeasured) -> bool:
    before = old.model_dump(exclude={"event"})
    for name, value in new.model_dump(exclude={"event"}).items():
        known = before[name]
        # how sure a speed is changes all the time, and is told along with it
        if value is None or (known is not None and name in _ERRORS):
            continue
        if known is None or abs(value - known) > NEWS * abs(known):
            return True
    return False
