"""What a step takes of memory beside weights and cache: activations, and the logits of all rows.

Owns that reckoning, from the model's files. Knows nothing of what steps read."""

from collections.abc import Callable
from dataclasses import dataclass

from tensor_llm.config import ModelConfig
from tensor_llm.memory_report import MemoryReport

LOGIT_BYTES = 4
MANY = 1024
"""Tokens, to tell what each takes from what a step takes anyway."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StepMemory:
    """Nothing by default, as where nobody reckoned."""

    fixed_bytes: int = 0
    token_bytes: int = 0

    def bytes(self, tokens: int) -> int:
        """Of a step that reads so many tokens of prompts; rounded up, for what changes with every
        change of speed would be news all the time."""
        found = self.fixed_bytes + tokens * self.token_bytes
        grain = 1 << max(0, found.bit_length() - 3)
        return -(-found // grain) * grain


def step_memory(
    report: Callable[[int], MemoryReport], config: ModelConfig, rows: int
) -> StepMemory:
    """`report` tells of a chunk of so many tokens; `rows` sequences decode beside it."""
    one, many = (
        sum(device.activation_bytes for device in report(chunk).devices) for chunk in (1, 1 + MANY)
    )
    token_bytes = -(-(many - one) // MANY)
    logits = rows * config.vocabulary * LOGIT_BYTES
    return StepMemory(fixed_bytes=one + rows * token_bytes + logits, token_bytes=token_bytes)
