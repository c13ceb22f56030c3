"""How fast the engine is, and how sure that is, learnt from what it does.

Owns the running measurements of each model and the decision when they are worth telling; knows
nothing of who uses them."""

import math
from collections.abc import Callable, Mapping

from engines.protocol import RatesMeasured
from engines.tensor.fits import Line, Speed
from noidle.snapshot import ModelRates

TELL_EVERY_S = 1.0
LONG_PART = 64
"""Tokens read at once, from which on a prompt's speed is that of long prompts."""
HIDDEN = 1.25
"""So many times a decode step, at most, takes one behind which a part of a prompt is hidden."""
NEWS = 0.02
"""Change worth telling, as a share."""
MODELS = 16
"""Of more than these the one that was longest unused is forgotten."""
_ERRORS = ("prefill_error", "step_error")


class Reading:
    """Speed of reading prompts. A short part takes as long as the device's overhead, which
    says little of long ones: it counts only until a long one was read."""

    def __init__(self) -> None:
        self._short, self._long = Speed(), Speed()

    def add(
        self, tokens: int, spent_s: float, weight: float = 1.0, usual: int | None = None
    ) -> None:
        """A part that is no shorter than is `usual` here counts as long."""
        whole = tokens >= min(LONG_PART, usual or LONG_PART)
        (self._long if whole else self._short).add(tokens, spent_s, weight)

    @property
    def per_s(self) -> float | None:
        return self._long.per_s or self._short.per_s

    @property
    def error(self) -> float | None:
        return (self._short if self._long.per_s is None else self._long).error


class ModelBook:
    """One model in this engine."""

    def __init__(self) -> None:
        self.prefill, self.decode = Reading(), Line()
        # tokens of prompts that are read in a step beside which others decode
        self.chunk_tokens: int | None = None
        # of its files
        self.weight_bytes: int | None = None

    def step(self, decoded: int, read: int, spent_s: float, weight: float = 1.0) -> None:
        """So many sequences got a token, so many tokens of prompts were read. Both take one pass
        over the weights: the longer of them counts, and what each sequence takes beside it."""
        if not read:
            if decoded:
                self.decode.add(decoded, spent_s, weight)
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
            self.prefill.add(read, spent_s, weight, self.chunk_tokens)

    def measured(self) -> ModelRates:
        step = self.decode.fit()
        return ModelRates(
            prefill_tokens_per_s=self.prefill.per_s,
            step_s=step[0] if step else None,
            step_s_per_sequence=step[1] if step else None,
            chunk_tokens=self.chunk_tokens,
            prefill_error=self.prefill.error,
            step_error=self.decode.error,
            weight_bytes=self.weight_bytes,
        )

    def _hidden(self, read: int, step_s: float, spent_s: float) -> bool:
        """The pass over the weights took longer than reading: that tells nothing of reading."""
        known = self.prefill.per_s
        return known is not None and read / known < step_s and spent_s <= HIDDEN * step_s


class RateBook:
    """All that is measured; `news` is worth an event about once a second."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self.load, self.train = Speed(), Speed()
        # the one that was used last comes last
        self._models: dict[str, ModelBook] = {}
        self._told = RatesMeasured()
        self._told_at_s = -math.inf

    def of(self, model: str) -> ModelBook:
        """The model's, which is now the one that was used last."""
        book = self._models.pop(model, None) or ModelBook()
        self._models[model] = book
        if len(self._models) > MODELS:
            del self._models[next(iter(self._models))]
        return book

    def known(self, model: str) -> ModelBook | None:
        """The model's, if it was ever used."""
        return self._models.get(model)

    @property
    def untold(self) -> bool:
        """There is news, to be told when its time has come."""
        return _differ(self._measured(), self._told)

    def tell_soon(self) -> None:
        """What was just measured need not wait."""
        self._told_at_s = -math.inf

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
        models = {name: book.measured() for name, book in self._models.items()}
        models = {name: rates for name, rates in models.items() if _says(rates)}
        last = list(models.values())[-1] if models else ModelRates()
        return RatesMeasured(
            **last.model_dump(),
            load_bytes_per_s=self.load.per_s,
            train_tokens_per_s=self.train.per_s,
            models=models,
        )


def _says(rates: ModelRates) -> bool:
    return rates.prefill_tokens_per_s is not None or rates.step_s is not None


def _differ(new: RatesMeasured, old: RatesMeasured) -> bool:
    before = _figures(old)
    for name, value in _figures(new).items():
        known = before.get(name)
        # how sure a speed is changes all the time, and is told along with it
        if known is not None and name[-1] in _ERRORS:
            continue
        if known is None or abs(value - known) > NEWS * abs(known):
            return True
    return False


def _figures(rates: RatesMeasured) -> Mapping[tuple[str, str], float]:
    """Of all models and of the engine itself, by model and name."""
    of = {"": rates.model_dump(exclude={"event", "models"})}
    of |= {model: one.model_dump() for model, one in rates.models.items()}
    return {
        (model, name): value
        for model, own in of.items()
        for name, value in own.items()
        if value is not None
    }
