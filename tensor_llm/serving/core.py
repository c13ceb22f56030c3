"""Many requests, one model: a step at a time, each for everybody who can move.

Owns the order of a step (plan, launch, land), sampling, and the search for the culprit when a
step fails. Knows nothing of text: who finds a stop string drops the sequence."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from tensor_llm.serving.executor import Executor
from tensor_llm.serving.request import Request
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


class Core:
    """Not thread-safe. `rows` sequences run at once, others wait. A step reads up to
    `chunk_tokens` tokens of prompts. `salt` is whatever makes equal tokens mean other keys and
    values: the model's revision."""

    def __init__(
        self,
        executor: Executor,
        *,
        rows: int,
        chunk_tokens: int | Callable[[], int] = 256,
        salt: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.executor = executor

    def add(self, request: Request) -> Sequence:
        """
        Raises:
            ValueError: tokens and max_tokens exceed the context, or all blocks there are.
        """
        raise NotImplementedError

    def drop(self, sequence: Sequence) -> None:
        """Takes a sequence out, whatever its state; no output comes for it any more."""
        raise NotImplementedError

    def step(self) -> list[Output]:
        """Launches what can be launched and lands the oldest step under way; an output for
        each sequence that it moved. Empty where nothing is to be done."""
        raise NotImplementedError

    @property
    def busy(self) -> bool:
        """Whether some sequence is not at its end, or a step is under way."""
        raise NotImplementedError

    @property
    def kv_tokens_total(self) -> int:
        raise NotImplementedError

    @property
    def kv_tokens_free(self) -> int:
        raise NotImplementedError

    @property
    def waiting(self) -> list[Sequence]:
        """Those that have no row yet, or lost it."""
        raise NotImplementedError

    @property
    def running(self) -> list[Sequence]:
        raise NotImplementedError

    def stats(self) -> Stats:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing more comes; lands what is under way and closes the executor."""
        raise NotImplementedError
