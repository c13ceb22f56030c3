"""Writes a model of either layout as a directory that transformers loads.

Knows nothing of the store."""

from pathlib import Path


def export(folder: Path, to: Path) -> None:
    """Packed weights are written as bfloat16; `to` must be new or empty.

    Raises:
        CheckpointError: the model cannot be used, or `to` is not empty.
    """
    raise NotImplementedError
