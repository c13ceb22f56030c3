"""By which angle a position turns each pair of a head's channels (RoPE, Su et al. 2021), with
the ways to stretch it. Knows nothing of queries and keys.

Letters: D half a head's size."""

import math
from functools import lru_cache

import torch
from torch import Tensor

from tensor_llm.config import ModelConfig
from tensor_llm.rope_scaling import RopeKind
from tensor_llm.rope_scaling import RopeScaling as RopeScaling


@lru_cache(maxsize=64)
def frequencies(config: ModelConfig, device: torch.device | str = "cpu") -> tuple[Tensor, float]:
    """Radians a position for each pair of channels (D), float32, and what cosines and sines
    are multiplied with. Shared: do not write to it."""
    # an inference tensor could not be used by training later
    with torch.inference_mode(False):
        frequency_D, scale = _frequencies(config)
        return frequency_D.to(device), scale


def _frequencies(config: ModelConfig) -> tuple[Tensor, float]:
    exponent_D = torch.arange(0, config.head_size, 2).float() / config.head_size
    plain_D = 1.0 / config.rope_theta**exponent_D
    rope = config.rope
    if rope is None:
        return plain_D, 1.0
    if rope.kind is RopeKind.LINEAR:
        return plain_D / rope.factor, 1.0
    if rope.kind is RopeKind.LLAMA3:
        return _by_wavelength(plain_D, rope), 1.0
    return _by_turns(plain_D, rope, config)


def _by_wavelength(plain_D: Tensor, rope: RopeScaling) -> Tensor:
    assert rope.original_context is not None
    # turns within the original context: below `low` divided, above `high` kept
    turns_D = rope.original_context * plain_D / (2 * math.pi)
    low, high = rope.low_frequency_factor, rope.high_frequency_factor
    kept_D = ((turns_D - low) / (high - low)).clamp(0, 1)
    return plain_D * (kept_D + (1 - kept_D) / rope.factor)


def _by_turns(plain_D: Tensor, rope: RopeScaling, config: ModelConfig) -> tuple[Tensor, float]:
    assert rope.original_context is not None
    first = _channel_of_turns(rope.beta_fast, rope.original_context, config)
    last = _channel_of_turns(rope.beta_slow, rope.original_context, config)
    if rope.truncate:
        first, last = math.floor(first), math.ceil(last)
    # bounded by the head's size, not by half of it, as in the paper's own code
    first, last = max(first, 0), min(last, config.head_size - 1)
    if first == last:
        last += 0.001
    divided_D = ((torch.arange(len(plain_D)) - first) / (last - first)).clamp(0, 1)
    scale = rope.attention_factor
    if scale is None:
        scale = 0.1 * math.log(rope.factor) + 1 if rope.factor > 1 else 1.0
    return plain_D * (1 - divided_D + divided_D / rope.factor), scale


def _channel_of_turns(turns: float, context: int, config: ModelConfig) -> float:
    """Where, among the pairs of channels, a frequency turns so often within the context."""
    distance = math.log(context / (turns * 2 * math.pi)) / math.log(config.rope_theta)
    return config.head_size * distance / 2
