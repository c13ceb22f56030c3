"""One answer from one model, in this process: for tests, samples and people at a prompt. The
engines' batched loop stands on the same pieces.

Knows nothing of jobs or batches."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from tensor_llm.cache import KVCache
from tensor_llm.model import Decoder
from tensor_llm.sampling import Sampling, SamplingBatch, sample
from tensor_llm.text_stream import TextStream
from tensor_llm.tokenizer import Tokenizer

_Next = Callable[[Sequence[int]], Tensor]


def generate(
    model: Decoder,
    prompt: Sequence[int],
    *,
    max_tokens: int,
    sampling: Sampling = Sampling(),  # noqa: B008 -- frozen
    eos_token: int | None = None,
    cached: bool = True,
    chunk: int = 512,
) -> list[int]:
    """Up to `max_tokens` tokens after the prompt, the end token left out. Uncached, every token
    reads the whole sequence again: the plain definition that the cache must equal.

    Raises:
        ValueError: the prompt is empty, or it and `max_tokens` exceed the context.
    """
    context = model.config.context
    if not prompt or len(prompt) + max_tokens > context:
        raise ValueError(
            f"prompt of {len(prompt)} and max_tokens of {max_tokens} tokens: allowed is a prompt "
            f"of at least 1, together {context}"
        )
    device = model.embedding.weight.device
    following = _cached(model, device, chunk) if cached else _uncached(model, device)
    batch = SamplingBatch.of([sampling], device)
    tokens = list(prompt)
    while len(tokens) < len(prompt) + max_tokens:
        logits_V = following(tokens)
        token = int(sample(logits_V[None], batch, [len(tokens)]))
        if token == eos_token:
            break
        tokens.append(token)
    return tokens[len(prompt) :]


def complete(
    model: Decoder,
    tokenizer: Tokenizer,
    prompt: str,
    *,
    max_tokens: int,
    sampling: Sampling = Sampling(),  # noqa: B008 -- frozen
    stop: Sequence[str] = (),
) -> str:
    """The text after `prompt`, as `generate` finds it; as much of the prompt's end is read as
    the context leaves room for."""
    room = model.config.context - max_tokens
    tokens = generate(
        model,
        tokenizer.encode(prompt)[-room:],
        max_tokens=max_tokens,
        sampling=sampling,
        eos_token=tokenizer.eos_token,
    )
    stream, text = TextStream(tokenizer, stop), ""
    for token in tokens:
        text += stream.push(token)
        if stream.stopped:
            break
    return text + stream.finish()


def _cached(model: Decoder, device: torch.device, chunk: int) -> _Next:
    dtype = model.embedding.weight.dtype
    cache = KVCache(model.config, rows=1, device=device, dtype=dtype)
    row = cache.claim()

    def following(tokens: Sequence[int]) -> Tensor:
        new_T = torch.tensor(tokens[cache.length(row) :], device=device)
        for part_T in torch.split(new_T, chunk):
            logits_V = model.prefill(part_T, cache, row)
        return logits_V

    return following


def _uncached(model: Decoder, device: torch.device) -> _Next:
    @torch.inference_mode()
    def following(tokens: Sequence[int]) -> Tensor:
        logits_BTV: Tensor = model(torch.tensor([tokens], device=device))
        return logits_BTV[0, -1]

    return following
