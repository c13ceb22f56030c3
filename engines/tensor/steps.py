"""What a core's last step did, and how long. Knows nothing of who wants to know."""

from typing import NamedTuple

from tensor_llm.serving.core import Core


class LastStep(NamedTuple):
    """Sequences that got a token, tokens of prompts that were read, and the time."""

    decoded: int
    read: int
    spent_s: float


def last_step(core: Core, spent_s: float | None = None) -> LastStep:
    """`spent_s`: since the step before it, where that is known better than to the core."""
    stats = core.stats()
    rows, spent_s = stats.decode_rows, stats.step_s if spent_s is None else spent_s
    if rows and core.executor.flights > 1:
        # each of several steps under way serves a part of the runs, one after the other
        every = max(rows, sum(one.decoding for one in core.running))
        rows, spent_s = every, spent_s * every / rows
    return LastStep(rows, stats.chunk_tokens, spent_s)
