"""Takes a model into the store for a person, and says what that did: to the files, to the model's
judgement, to this process's memory.

Owns the order. Imports torch when a model is taken in, not before."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from noidle.snapshot import ModelInfo
from ops.models.card import Card, stored_card
from ops.models.progress import Told
from tensor_llm.store import ModelStore


@dataclass(frozen=True, slots=True, kw_only=True)
class Fidelity:
    """Perplexity of one text before packing and after."""

    before: float
    after: float
    # of the text that were predicted
    tokens: int

    @property
    def change(self) -> float:
        return self.after / self.before - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Added:
    """What taking a model in did."""

    info: ModelInfo
    card: Card
    # of the weights where they came from
    read_bytes: int
    # resident, before and after, of this process
    before_bytes: int
    after_bytes: int
    # absent: nothing was packed
    fidelity: Fidelity | None

    def fields(self) -> dict[str, Any]:
        found: dict[str, Any] = {
            "model": self.card.model_dump(exclude_none=True),
            "read_bytes": self.read_bytes,
            "memory": {"before_bytes": self.before_bytes, "after_bytes": self.after_bytes},
        }
        if self.fidelity is not None:
            found["perplexity"] = {
                "before": self.fidelity.before,
                "after": self.fidelity.after,
                "change": self.fidelity.change,
                "tokens": self.fidelity.tokens,
            }
        return found


def take_in(
    store: ModelStore,
    folder: Path,
    name: str,
    *,
    packing: str | None,
    text: str,
    told: Told,
) -> Added:
    """
    Args:
        packing: int8 or int4; absent: as it is.
        text: what a packed model is compared with the plain one on.

    Raises:
        CheckpointError: the model cannot be used, or the name is taken.
    """
    from tensor_llm.adding import add_model
    from tensor_llm.families import read_directory
    from tensor_llm.quantization import WeightFormat

    process = psutil.Process()
    before = process.memory_info().rss
    read_bytes = read_directory(folder).weight_bytes
    info = add_model(
        store,
        folder,
        name,
        format=None if packing is None else WeightFormat(packing),
        progress=told,
    )
    after = process.memory_info().rss
    fidelity = None
    if packing is not None:
        fidelity = _compare(folder, store.directory(name), text)
    return Added(
        info=info,
        card=stored_card(store, name),
        read_bytes=read_bytes,
        before_bytes=before,
        after_bytes=after,
        fidelity=fidelity,
    )


def _compare(plain: Path, packed: Path, text: str) -> Fidelity:
    from tensor_llm.fidelity import perplexity_change

    found = perplexity_change(plain, packed, text)
    return Fidelity(before=found.before, after=found.after, tokens=found.tokens)
