"""What comes out of the core, step by step and in all. Knows nothing of how it came about."""

from dataclasses import dataclass
from typing import Literal

from tensor_llm.serving.sequence import Sequence

Finish = Literal["eos", "length"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step did for one sequence."""

    sequence: Sequence
    # new ones, the end token left out
    tokens: tuple[int, ...] = ()
    # of the new tokens where the request wants them; of a scored text's tokens, part by part
    logprobs: tuple[float, ...] = ()
    # a scored text ends with "length"
    finished: Finish | None = None
    # why it cannot go on; it is out of the core
    error: Exception | None = None
    # tokens whose keys and values are in blocks
    read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What has happened so far, and the last step that landed."""

    steps: int
    evictions: int
    # tokens read, and tokens that were found in blocks instead
    read_tokens: int
    reused_tokens: int
    # of the last step
    decode_rows: int
    chunk_tokens: int
    step_s: float
