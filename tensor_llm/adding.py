"""Takes models from directories into the store and out of it again.

Knows nothing of how they compute."""

from collections.abc import Callable
from pathlib import Path

from noidle.snapshot import ModelInfo
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore

Progress = Callable[[int, int], None]
"""Told of the bytes read so far, and of all."""


def add_model(
    store: ModelStore,
    source_dir: Path,
    name: str,
    *,
    format: WeightFormat | None = None,  # noqa: A002 -- the field's word
    progress: Progress | None = None,
) -> ModelInfo:
    """Copies a model into the store as it is, or packs it, one tensor at a time, and makes it
    current.

    Raises:
        CheckpointError: the model cannot be used, or the name is taken.
    """
    raise NotImplementedError


def remove_model(store: ModelStore, name: str) -> None:
    """
    Raises:
        CheckpointError: there is no such model.
    """
    raise NotImplementedError
