"""How much of a prompt is read in one step, so that nobody who decodes beside it waits long.

Owns that choice, from the measured speed of reading; knows nothing of prompts."""

from engines.tensor.rates import HIDDEN, RateBook

PART_S, ALONE_PART_S = 0.1, 0.25
"""How long a part of a prompt takes at most while others decode, and while none does."""
ACCELERATOR_PART_S = 0.01
"""The first on an accelerator: there a part is as quick a token as a long one once it computes as
long as the weights are read. On a CPU it is not: 64 tokens took 1.1 ms each, 256 took 0.6."""
SMALLEST_PART, FIRST_PART, LARGEST_PART = 16, 64, 2048
"""Tokens: the least, before speed is known, and the most."""


class Pace:
    """Told before each pass who is at work; asked in the midst of it."""

    def __init__(self, rates: RateBook, *, part_s: float = PART_S) -> None:
        self._rates, self._part_s = rates, part_s
        # somebody waits for the next token
        self.decoding = False
        # models that take a step in this pass
        self.models = 1
        # nobody else is there: whole prompts are read at once
        self.alone = False

    def part_tokens(self, model: str) -> int:
        if self.alone:
            return LARGEST_PART
        rates = self._rates.of(model)
        per_s = rates.prefill.per_s
        if per_s is None:
            return FIRST_PART
        step = rates.decode.fit()
        # what a decode step takes anyway, a part may take too: both are one pass over the weights.
        # A little more, so that a part grows for as long as it costs nothing
        free_s = HIDDEN * step[0] if step else 0.0
        beside = _tokens(per_s * max(self._part_s / self.models, free_s))
        rates.chunk_tokens = beside
        return beside if self.decoding else _tokens(per_s * ALONE_PART_S / self.models)

    def largest_part(self, model: str) -> int:
        """Tokens of a prompt that one step may read while all that is there is one model."""
        known = self._rates.known(model)
        per_s = known.prefill.per_s if known else None
        return FIRST_PART if per_s is None else _tokens(per_s * ALONE_PART_S)


def _tokens(wanted: float) -> int:
    return max(SMALLEST_PART, min(LARGEST_PART, int(wanted)))
