"""What packing its weights does to a model's judgement: the perplexity of one text before and
after.

Owns how it is measured. Knows nothing of where models or texts come from."""

from dataclasses import dataclass
from pathlib import Path

from noidle.errors import CheckpointError
from tensor_llm.checkpoint import load_folder
from tensor_llm.score import perplexity
from tensor_llm.serving.opening import open_core
from tensor_llm.serving.request import Request
from tensor_llm.serving.single import outputs_of

MOST_TOKENS = 2048


@dataclass(frozen=True, slots=True, kw_only=True)
class PerplexityChange:
    """Perplexities of the same tokens."""

    before: float
    after: float
    # predicted
    tokens: int

    @property
    def relative(self) -> float:
        return self.after / self.before - 1


def perplexity_change(plain: Path, packed: Path, text: str) -> PerplexityChange:
    """One model after the other, each as it is stored; as much of the text as its context and
    MOST_TOKENS allow.

    Raises:
        CheckpointError: a folder holds no usable model, or the text has less than two tokens.
    """
    before, after = _logprobs(plain, text), _logprobs(packed, text)
    return PerplexityChange(before=perplexity(before), after=perplexity(after), tokens=len(after))


def _logprobs(folder: Path, text: str) -> list[float]:
    loaded = load_folder(folder)
    tokens = loaded.tokenizer.encode(text)[: min(MOST_TOKENS, loaded.config.context)]
    if len(tokens) < 2:
        raise CheckpointError.of(folder, f"a text of {len(tokens)} tokens tells nothing")
    core = open_core(loaded, kv_tokens=len(tokens))
    try:
        core.add(Request(tokens=tuple(tokens), max_tokens=0, score=True))
        return [logprob for output in outputs_of(core) for logprob in output.logprobs]
    finally:
        core.close()
