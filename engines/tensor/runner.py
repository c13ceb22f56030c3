"""What a batch needs of a model in memory: rows that come and go, tokens in, logits out.

Owns the form all engines share and the plain one, a model whole on one device; `hybrid` has
the other. Knows nothing of jobs.

Letters: B rows, T tokens, V vocabulary."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tensor_llm.cache import KVCache
from tensor_llm.model import Decoder


class Flight(Protocol):
    """A decode step under way."""

    def land(self) -> Tensor:
        """Waits; logits (B, V), or raises what went wrong."""


class Runner(Protocol):
    """A model with its cache; not thread-safe."""

    # decode steps of disjoint rows that may be under way at once
    flights: int
    # tokens a row can hold
    capacity: int
    rows: int

    def claim(self) -> int | None:
        """An empty row, or None where all are taken."""

    def release(self, row: int) -> None: ...

    def length(self, row: int) -> int: ...

    def truncate(self, row: int, length: int) -> None: ...

    def read(self, tokens: Sequence[int], row: int, *, every: bool) -> Tensor:
        """Appends tokens to a row; logits (T, V) after every one, or (1, V) after the last."""

    def decode(self, tokens: Sequence[int], rows: Sequence[int]) -> Flight:
        """Begins one step: a token for each row."""

    def close(self) -> None:
        """Nothing more comes; lets its threads end."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that was over when it began."""

    logits_BV: Tensor

    def land(self) -> Tensor:
        return self.logits_BV


class WholeRunner:
    """A model that lies on one device."""

    flights = 1

    def __init__(self, model: Decoder, cache: KVCache) -> None:
        self._model = model
        self._cache = cache
        self.capacity, self.rows = cache.capacity, cache.rows

    def claim(self) -> int | None:
        return self._cache.claim() if self._cache.free_rows else None

    def release(self, row: int) -> None:
        self._cache.release(row)

    def length(self, row: int) -> int:
        return self._cache.length(row)

    def truncate(self, row: int, length: int) -> None:
        self._cache.truncate(row, length)

    @torch.inference_mode()
    def read(self, tokens: Sequence[int], row: int, *, every: bool) -> Tensor:
        token_T = torch.tensor(tokens, device=self._cache.device)
        if not every:
            return self._model.prefill(token_T, self._cache, row)[None]
        span = self._cache.extend([row], len(token_T))
        x_BTE = self._model.run_layers(self._model.embed(token_T[None]), attending=span)
        return self._model.head(x_BTE)[0]

    def decode(self, tokens: Sequence[int], rows: Sequence[int]) -> Landed:
        token_B = torch.tensor(tokens, device=self._cache.device)
        return Landed(self._model.decode(token_B, self._cache, rows))

    def close(self) -> None:
        pass
