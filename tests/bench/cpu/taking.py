"""What is asked of each side, and what it answers. Knows no side."""

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from pydantic import BaseModel, ConfigDict

from tests.bench.cpu.shape import Format

MOST_SEQUENCES, MOST_TOKENS = 8, 2048
"""At once, and of all together."""


class Taken(BaseModel):
    """One round of one side."""

    model_config = ConfigDict(frozen=True)

    # until the first token of every sequence is known
    prefill_s: float
    # of all steps after that
    decode_s: float
    first_tokens: tuple[int, ...]


class Side(Protocol):
    formats: tuple[Format, ...]

    def __init__(self, folder: Path, threads: int) -> None: ...

    def load(self, format_: Format) -> int:
        """Bytes of weights that a decode step reads."""

    def take(self, format_: Format, prompts: Sequence[Sequence[int]], steps: int) -> Taken: ...
