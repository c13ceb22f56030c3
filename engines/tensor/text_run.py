"""Runs that read a text: generate and score, from their first token to their result.

Owns what one run knows of itself; knows nothing of the runs beside it or of where its logits
come from.

Letters: B rows, T tokens, V vocabulary."""

from collections.abc import Callable

import torch
from torch import Tensor

from engines.protocol import RunResult, RunStep, Start
from engines.tensor.library import Resident
from noidle.errors import InvalidJob
from noidle.jobs import Generate, Score
from tensor_llm.sampling import Sampling, SamplingBatch, sample
from tensor_llm.score import perplexity
from tensor_llm.text_stream import TextStream

LOGPROB_DIGITS = 5


class Answer:
    """A generate run. Its tokens are those that show: the end token is not among them."""

    # whether it wants logits after each token it reads, or after the last alone
    every = False

    def __init__(
        self,
        start: Start,
        job: Generate,
        resident: Resident,
        prompt: list[int],
        clock: Callable[[], float],
        load_ms: float | None,
    ) -> None:
        """
        Raises:
            InvalidJob: prompt and answer exceed the context.
            ValueError: the emitted text is not what the emitted tokens spell.
        """
        _check_fits(resident, "prompt", len(prompt), job.max_tokens)
        self.id, self.resident = start.run, resident
        self.sampling = Sampling(
            temperature=job.temperature, top_k=job.top_k, top_p=job.top_p, seed=start.seed
        )
        self._limit = job.max_tokens
        self._reason: str | None = None
        self._stream = TextStream(resident.tokenizer, job.stop)
        self._resume(start)
        # to be read into the cache before anything comes out, and how many are
        self.inputs, self.read = [*prompt, *start.tokens], 0
        # tokens its row may come to hold
        self.kv_tokens = len(prompt) + job.max_tokens
        self.row: int | None = None
        # dropped while a step is under way: to be let go when that ends
        self.gone = False
        self._prompt_tokens, self._earlier = len(prompt), len(start.tokens)
        self._clock, self._load_ms = clock, load_ms
        self._began_s, self._first_s, self._last_s = clock(), clock(), clock()
        self._tokens: list[int] = []
        self._parts: list[str] = []
        # how much of both was told
        self._told_tokens = self._told_parts = 0
        self._check_over()

    @property
    def last_token(self) -> int:
        return self._tokens[-1]

    @property
    def position(self) -> int:
        """Index of the next token in the whole sequence."""
        return self._prompt_tokens + self._earlier + len(self._tokens)

    def seated(self) -> None:
        """It has a row: from here on it is being read, not waiting."""
        self._began_s = self._clock()

    def hear(self, logits_TV: Tensor) -> None:
        """A part was read: logits after each of its tokens, or after its last alone."""
        if self.read < len(self.inputs):
            return
        batch = SamplingBatch.of([self.sampling], logits_TV.device)
        self.push(int(sample(logits_TV[-1:], batch, [self.position])))
        self._first_s = self._last_s = self._clock()

    def push(self, token: int) -> None:
        """The next token was chosen."""
        self._last_s = self._clock()
        if token == self.resident.tokenizer.eos_token:
            self._reason = "eos"
            self._parts.append(self._stream.finish())
            return
        self._tokens.append(token)
        self._parts.append(self._stream.push(token))
        self._check_over()

    def tell(self) -> RunStep:
        tokens, parts = self._tokens[self._told_tokens :], self._parts[self._told_parts :]
        self._told_tokens, self._told_parts = len(self._tokens), len(self._parts)
        revision = self.resident.revision if tokens else None
        return RunStep(run=self.id, text="".join(parts), tokens=tuple(tokens), revision=revision)

    def result(self) -> RunResult | None:
        if self._reason is None:
            return None
        decode_ms = (self._last_s - self._first_s) * 1000
        after_first = len(self._tokens) - 1
        return RunResult(
            text="".join(self._parts),
            tokens=tuple(self._tokens),
            finish_reason=self._reason,
            prompt_tokens=self._prompt_tokens,
            model=self.resident.name,
            revision=self.resident.revision,
            load_ms=self._load_ms,
            prefill_ms=(self._first_s - self._began_s) * 1000,
            decode_ms=decode_ms,
            tpot_ms=decode_ms / after_first if after_first > 0 else None,
        )

    def _resume(self, start: Start) -> None:
        try:
            self._stream.resume(start.tokens, start.text)
        except ValueError:
            # a former attempt had emitted all, what it held back too, and died before it said so
            whole = TextStream(self.resident.tokenizer)
            spelt = "".join(map(whole.push, start.tokens)) + whole.finish()
            if spelt != start.text:
                raise
            self._reason = "length" if len(start.tokens) >= self._limit else "eos"

    def _check_over(self) -> None:
        if self._reason is not None:
            return
        if self._stream.stopped:
            self._reason = "stop"
        elif self._earlier + len(self._tokens) >= self._limit:
            self._reason = "length"
            self._parts.append(self._stream.finish())


class Scoring:
    """A score run: log-probabilities of tokens 1…n-1, each given those before it."""

    every = True

    def __init__(
        self,
        start: Start,
        job: Score,
        resident: Resident,
        tokens: list[int],
        clock: Callable[[], float],
        load_ms: float | None,
    ) -> None:
        """
        Raises:
            InvalidJob: the text has fewer than two tokens, or more than the context.
        """
        _check_fits(resident, "text", len(tokens), 0)
        if len(tokens) < 2:
            raise InvalidJob.of("text", job.text, "text of at least 2 tokens")
        self.id, self.resident = start.run, resident
        self.inputs, self.read, self._targets = tokens[:-1], 0, tokens[1:]
        self.kv_tokens = len(tokens)
        self.row: int | None = None
        self._logprobs: list[float] = []
        self._clock, self._load_ms = clock, load_ms
        self._began_s = clock()

    def seated(self) -> None:
        self._began_s = self._clock()

    def hear(self, logits_TV: Tensor) -> None:
        targets = self._targets[len(self._logprobs) : self.read]
        target_T1 = torch.tensor(targets, device=logits_TV.device)[:, None]
        logprob_T1 = logits_TV.log_softmax(-1).gather(-1, target_T1)
        self._logprobs += logprob_T1[:, 0].tolist()

    def tell(self) -> RunStep:
        return RunStep(run=self.id)

    def result(self) -> RunResult | None:
        if self.read < len(self.inputs):
            return None
        return RunResult(
            prompt_tokens=len(self._targets) + 1,
            logprobs=tuple(round(one, LOGPROB_DIGITS) for one in self._logprobs),
            perplexity=perplexity(self._logprobs),
            model=self.resident.name,
            revision=self.resident.revision,
            load_ms=self._load_ms,
            prefill_ms=(self._clock() - self._began_s) * 1000,
        )


TextRun = Answer | Scoring


def _check_fits(resident: Resident, field: str, tokens: int, more: int) -> None:
    context = resident.runner.capacity
    if tokens + more <= context:
        return
    if more >= context:
        raise InvalidJob.of("max_tokens", more, f"fewer than {context}, with the prompt")
    allowed = f"at most {context - more} tokens"
    if more:
        allowed += f", as max_tokens is {more} and the context {context}"
    raise InvalidJob.of(field, f"{tokens} tokens", allowed)
