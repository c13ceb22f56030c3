"""One answer from one model, in this process: for tests, samples and people at a prompt. The
engines' loop stands on the same core.

Knows nothing of jobs or of other requests."""

from collections.abc import Sequence

import torch

from tensor_llm.model import Decoder
from tensor_llm.sampling import Sampling, SamplingBatch, sample
from tensor_llm.serving.request import Request
from tensor_llm.serving.single import outputs_of, single_core
from tensor_llm.text_stream import TextStream
from tensor_llm.tokenizer import Tokenizer


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
    if max_tokens < 1:
        return []
    request = Request(
        tokens=tuple(prompt),
        max_tokens=max_tokens,
        sampling=sampling,
        eos_tokens=frozenset(() if eos_token is None else (eos_token,)),
    )
    if not cached:
        return _uncached(model, request)
    core = single_core(model, len(prompt) + max_tokens, chunk)
    core.add(request)
    return [token for output in outputs_of(core) for token in output.tokens]


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


@torch.inference_mode()
def _uncached(model: Decoder, request: Request) -> list[int]:
    device = model.norm.weight.device
    batch = SamplingBatch.of([request.sampling], device)
    tokens, prompt = list(request.tokens), len(request.tokens)
    while len(tokens) < prompt + request.max_tokens:
        logits_BTV = model(torch.tensor([tokens], device=device))
        token = int(sample(logits_BTV[:, -1], batch, [len(tokens)]))
        if token in request.eos_tokens:
            break
        tokens.append(token)
    return tokens[prompt:]
