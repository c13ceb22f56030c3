"""Measures a model's speed once it is in memory and nothing waits, so that routers need not guess
until the first jobs have shown it.

Owns what is read and decoded for that, and when it is enough. Nobody else may use the core
meanwhile; knows nothing of who could. What is found weighs less than what work shows."""

from collections.abc import Callable, Generator

from engines.tensor.rates import ModelBook
from engines.tensor.steps import LastStep, last_step
from tensor_llm.serving.core import Core
from tensor_llm.serving.request import Request

BUDGET_S = 2.0
"""After the first step, which also pays for what a device sets up. What would take longer is not
begun."""
WEIGHT = 0.5
SAMPLES = 5
"""Of each kind of step, after one that warms up."""
LARGEST_BATCH = 8
PROMPT_TOKENS = 8
"""What a sequence reads that is there to decode."""
PART_S = 0.1
"""A part of a prompt that takes so long tells of long ones."""
SMALLEST_PART, LARGEST_PART = 16, 512
"""Tokens of it."""
SEQUENCE_TOKENS = 32
"""A sequence that decodes takes no more room."""
DECODING, READING = 0.3, 0.85
"""When so much of the budget is over, there is enough of it; at least one step was counted."""
Course = Generator[None, None, None]
"""Pauses after each step."""


class StepFailed(Exception):
    """The device did not take it; who comes next will be told why."""


class Calibration:
    """Advance it step by step until it is over, and close it then, or at any time before."""

    def __init__(
        self, core: Core, book: ModelBook, *, rows: int, capacity: int, clock: Callable[[], float]
    ) -> None:
        """`rows` run at once, of at most `capacity` tokens each. The core must read whatever it
        can of a prompt in one step."""
        self._core, self._book, self._clock = core, book, clock
        self._rows = min(rows, LARGEST_BATCH, core.kv_tokens_total // SEQUENCE_TOKENS)
        self._capacity = capacity
        self._began_s: float | None = None
        self._last_s = 0.0
        self._course = self._measure()

    @property
    def borrowed_tokens(self) -> int:
        """What it holds of the cache, and gives back."""
        return self._core.kv_tokens_total - self._core.kv_tokens_free

    def advance(self) -> bool:
        """One step; false if it is over."""
        try:
            next(self._course)
        except (StopIteration, StepFailed):
            return False
        return True

    def close(self) -> None:
        """Waits for steps that are under way, one or two of them."""
        for one in [*self._core.waiting, *self._core.running]:
            self._core.drop(one)
        while self._core.busy:
            self._core.step()

    def _measure(self) -> Course:
        if min(self._capacity, self._core.kv_tokens_total) < SEQUENCE_TOKENS:
            return
        yield from self._decode(1, DECODING)
        yield from self._read(READING)
        if self._rows > 1:
            yield from self._decode(self._rows, 1.0)

    def _decode(self, batch: int, share: float) -> Course:
        """So many at once."""
        if not self._affords(share, self._expected_s(batch * PROMPT_TOKENS)):
            return
        for _ in range(batch):
            self._add(PROMPT_TOKENS, 2 + SAMPLES)
        warm = counted = False
        while self._core.busy and (not counted or self._affords(share)):
            step = yield from self._step()
            if step.decoded == batch and not step.read:
                if warm:
                    self._count(step)
                    counted = True
                warm = True
            if not self._affords(1.0, step.spent_s):
                break
        self.close()

    def _read(self, share: float) -> Course:
        """Prompts of twice and twice the length, until one takes long enough; then some of that."""
        size, most = SMALLEST_PART, min(LARGEST_PART, self._capacity - 1)
        if not self._affords(share, self._expected_s(size)):
            return
        step = yield from self._prompt(size)
        while step.spent_s < PART_S and size < most and self._affords(share, 2 * step.spent_s):
            size = min(2 * size, most)
            step = yield from self._prompt(size)
        # the first of its size warmed up
        last = step
        for _ in range(SAMPLES):
            if not self._affords(share, step.spent_s):
                break
            last = yield from self._prompt(size)
            self._count(last)
        if last is step:
            self._count(step)

    def _prompt(self, tokens: int) -> Generator[None, None, LastStep]:
        self._add(tokens, 1)
        step = yield from self._step()
        while self._core.busy:
            step = yield from self._step()
        return step

    def _step(self) -> Generator[None, None, LastStep]:
        for output in self._core.step():
            if output.error is not None:
                raise StepFailed from output.error
        if self._began_s is None:
            self._began_s = self._clock()
        yield
        step = last_step(self._core)
        self._last_s = step.spent_s
        return step

    def _add(self, tokens: int, max_tokens: int) -> None:
        vocabulary = self._core.executor.config.vocabulary
        text = tuple(place * 7919 % vocabulary for place in range(tokens))
        self._core.add(Request(tokens=text, max_tokens=max_tokens, reuse=False))

    def _count(self, step: LastStep) -> None:
        self._book.step(step.decoded, step.read, step.spent_s, WEIGHT)

    def _expected_s(self, tokens: int) -> float:
        """To read so many; before that is known, half more than the last step."""
        per_s = self._book.prefill.per_s
        return tokens / per_s if per_s else 1.5 * self._last_s

    def _affords(self, share: float, more_s: float = 0.0) -> bool:
        """Whether the time until so far in the budget is enough."""
        began_s = self._began_s
        return began_s is None or self._clock() + more_s <= began_s + share * BUDGET_S
