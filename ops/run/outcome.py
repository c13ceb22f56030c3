"""What a run writes: the answer to standard output, everything about it to standard error; or
one JSON object. Knows nothing of how a model is asked."""

import sys
from pathlib import Path
from typing import Any

import psutil

from noidle.terminal import write_answer
from ops.commands import output
from ops.metrics import procfs
from ops.run.figures import memory_fields, memory_words
from ops.run.opening import Opened
from ops.run.session import Answer, Scored

_KIB = 1024
_LONGEST_TOKEN = 40


def show(text: str) -> None:
    """A part of an answer, at once."""
    write_answer(text)


def remark(text: str) -> None:
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def tell_answer(opened: Opened, answer: Answer) -> None:
    """After the text, which is out already."""
    show("\n")
    remark(f"{opened.figures.words()}; {answer.figures.words()}; {answer.finish_reason}")
    tell_peak()


def tell_score(opened: Opened, scored: Scored, *, each: bool) -> None:
    from tensor_llm.score import perplexity

    if each:
        _table(opened, scored)
    found = perplexity(scored.logprobs)
    output.line(f"perplexity {found:.4f} over {len(scored.logprobs)} tokens")
    remark(f"{opened.figures.words()}; {scored.figures.words()}")
    tell_peak()


def answer_json(opened: Opened, answer: Answer, seed: int | None) -> None:
    about = {
        "text": answer.text,
        "tokens": list(answer.tokens),
        "finish_reason": answer.finish_reason,
        "prompt_tokens": answer.figures.prompt_tokens,
        "prefix_tokens": answer.figures.prefix_tokens,
        **({} if seed is None else {"seed": seed}),
    }
    output.as_json({**about, **_about(opened, answer)})


def score_json(opened: Opened, scored: Scored) -> None:
    from tensor_llm.score import perplexity

    about = {
        "tokens": list(scored.tokens),
        "logprobs": list(scored.logprobs),
        "perplexity": perplexity(scored.logprobs),
    }
    output.as_json({**about, **_about(opened, scored)})


def tell_peak() -> None:
    remark(memory_words(peak_bytes()))


def peak_bytes() -> int | None:
    """The most that was resident in this process, files it maps included."""
    peak = procfs.fields(Path("/proc/self/status"), "VmHWM").get("VmHWM")
    if peak is not None:
        return peak * _KIB
    found: int = psutil.Process().memory_info().rss
    return found


def _about(opened: Opened, said: Answer | Scored) -> dict[str, Any]:
    model = opened.model
    return {
        "model": model.name,
        "revision": model.revision,
        "dtype": weight_type(opened),
        "device": opened.choice.device,
        "timings": {**opened.figures.fields(), **said.figures.fields()},
        "memory": memory_fields(opened.figures, peak_bytes()),
    }


def weight_type(opened: Opened) -> str:
    """How the weights lie in memory."""
    if opened.choice.dtype is not None:
        return opened.choice.dtype.value
    model = opened.model
    return model.format or str(model.model.norm.weight.dtype).removeprefix("torch.")


def _table(opened: Opened, scored: Scored) -> None:
    tokenizer = opened.model.tokenizer
    output.line(f"{'token':>8}  {'logprob':>9}  text")
    for token, logprob in zip(scored.tokens[1:], scored.logprobs, strict=True):
        shown = repr(tokenizer.token_bytes(token).decode(errors="replace"))
        output.line(f"{token:>8}  {logprob:>9.4f}  {shown[:_LONGEST_TOKEN]}")
