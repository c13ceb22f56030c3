"""How likely a model finds a text: the log-probability of each token given those before it.

Letters: T tokens of a chunk, V vocabulary."""

import math
from collections.abc import Iterator, Sequence

import torch

from tensor_llm.cache import KVCache
from tensor_llm.model import Decoder


def score_chunks(
    model: Decoder, tokens: Sequence[int], cache: KVCache, row: int, *, chunk: int = 256
) -> Iterator[list[float]]:
    """Yields the log-probabilities of tokens 1…n-1 chunk by chunk, so that a caller may do
    other work between; `row` must be empty. Memory for logits is bounded by the chunk."""
    device = model.embedding.weight.device
    token_N = torch.tensor(tokens, device=device)
    inputs, targets = torch.split(token_N[:-1], chunk), torch.split(token_N[1:], chunk)
    for input_T, target_T in zip(inputs, targets, strict=True):
        with torch.inference_mode():
            span = cache.extend([row], len(input_T))
            x_BTE = model.run_layers(model.embed(input_T[None]), attending=span)
            share_TV = model.head(x_BTE)[0].log_softmax(-1)
            logprob_T = share_TV.gather(-1, target_T[:, None])[:, 0]
        yield logprob_T.tolist()


def score(model: Decoder, tokens: Sequence[int], *, chunk: int = 256) -> list[float]:
    """The log-probabilities of tokens 1…n-1.

    Raises:
        ValueError: fewer than two tokens, or more than the context.
    """
    if not 2 <= len(tokens) <= model.config.context:
        raise ValueError(f"{len(tokens)} tokens: allowed are 2 to {model.config.context}")
    weight = model.embedding.weight
    cache = KVCache(model.config, rows=1, device=weight.device, dtype=weight.dtype)
    parts = score_chunks(model, tokens, cache, cache.claim(), chunk=chunk)
    return [logprob for part in parts for logprob in part]


def perplexity(logprobs: Sequence[float]) -> float:
    """exp of the mean negative log-probability; at most the largest float."""
    mean = -sum(logprobs) / len(logprobs)
    return math.exp(min(mean, 709.0))
