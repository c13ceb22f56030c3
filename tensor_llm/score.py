"""How likely a model finds a text: the log-probability of each token given those before it."""

import math
from collections.abc import Sequence

from tensor_llm.model import Decoder
from tensor_llm.serving.request import Request
from tensor_llm.serving.single import outputs_of, single_core


def score(model: Decoder, tokens: Sequence[int], *, chunk: int = 256) -> list[float]:
    """The log-probabilities of tokens 1…n-1. Memory for logits is bounded by the chunk.

    Raises:
        ValueError: fewer than two tokens, or more than the context.
    """
    if not 2 <= len(tokens) <= model.config.context:
        raise ValueError(f"{len(tokens)} tokens: allowed are 2 to {model.config.context}")
    core = single_core(model, len(tokens), chunk)
    core.add(Request(tokens=tuple(tokens), max_tokens=0, score=True))
    return [logprob for output in outputs_of(core) for logprob in output.logprobs]


def perplexity(logprobs: Sequence[float]) -> float:
    """exp of the mean negative log-probability; at most the largest float."""
    mean = -sum(logprobs) / len(logprobs)
    return math.exp(min(mean, 709.0))
