"""Runs that read a text: generate and score, from their first request to their result.

Owns what one run knows of itself and what it asks of the serving core; knows nothing of the
runs beside it."""

from collections.abc import Callable
from dataclasses import dataclass

from engines.protocol import RunResult, RunStep, Start
from engines.tensor.library import Resident
from engines.tensor.sharing import RANKS
from noidle.errors import InvalidJob
from noidle.jobs import Generate, Score
from tensor_llm.sampling import Sampling
from tensor_llm.score import perplexity
from tensor_llm.serving.core import Output
from tensor_llm.serving.request import Request
from tensor_llm.serving.sequence import Sequence
from tensor_llm.text_stream import TextStream

LOGPROB_DIGITS = 5


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """How a run came in."""

    tokens: tuple[int, ...]
    # that it waited for its model; absent: it was in memory
    load_ms: float | None
    tokenize_ms: float


class Answer:
    """A generate run. Its tokens are those that show: the end token is not among them."""

    def __init__(
        self,
        start: Start,
        job: Generate,
        resident: Resident,
        entry: Entry,
        clock: Callable[[], float],
    ) -> None:
        """
        Raises:
            InvalidJob: prompt and answer exceed the context.
            ValueError: the emitted text is not what the emitted tokens spell.
        """
        field = "prompt" if job.messages is None else "messages"
        _check_fits(resident, field, len(entry.tokens), job.max_tokens)
        self.id, self.resident = start.run, resident
        self._start, self._job, self._entry, self._clock = start, job, entry, clock
        self._reason: str | None = None
        self._stream = TextStream(resident.tokenizer, job.stop)
        self._stream_s = 0.0
        self._resume(start)
        self._tokens: list[int] = []
        self._parts: list[str] = []
        # of every attempt's tokens
        self._logprobs: list[float] = []
        # how much of both was told
        self._told_tokens = self._told_parts = 0
        # log-probabilities of what former attempts emitted are still to come
        self._rereads = job.logprobs and bool(start.tokens)
        self._sequence: Sequence | None = None
        self._first_s = self._last_s = clock()
        self._check_over()

    @property
    def request(self) -> Request | None:
        """What it asks next; None where nothing more is needed."""
        rank = RANKS[self._job.job_class]
        tokens = (*self._entry.tokens, *self._start.tokens)
        if self._rereads:
            return Request(tokens=tokens, max_tokens=0, rank=rank, score=True)
        if self._reason is not None:
            return None
        job = self._job
        return Request(
            tokens=tokens,
            max_tokens=job.max_tokens - len(self._start.tokens),
            sampling=Sampling(
                temperature=job.temperature,
                top_k=job.top_k,
                top_p=job.top_p,
                seed=self._start.seed,
            ),
            rank=rank,
            eos_tokens=self.resident.eos_tokens,
            logprobs=job.logprobs,
        )

    def asked(self, sequence: Sequence) -> None:
        """Its request is in the core."""
        # reading began with the first one
        self._sequence = self._sequence or sequence

    def hear(self, output: Output) -> None:
        self._logprobs += output.logprobs
        if self._rereads:
            if output.finished:
                self._rereads = False
                self._logprobs = self._logprobs[-len(self._start.tokens) :]
            return
        began_s = self._clock()
        if output.tokens or output.finished:
            self._first_s = self._first_s if self._tokens else began_s
            self._last_s = began_s
        for token in output.tokens:
            if self._reason is None:
                self._push(token)
        if output.finished == "eos" and self._reason is None:
            self._end("eos")
        self._stream_s += self._clock() - began_s

    def tell(self) -> RunStep:
        tokens, parts = self._tokens[self._told_tokens :], self._parts[self._told_parts :]
        self._told_tokens, self._told_parts = len(self._tokens), len(self._parts)
        revision = self.resident.revision if tokens else None
        return RunStep(run=self.id, text="".join(parts), tokens=tuple(tokens), revision=revision)

    def result(self) -> RunResult | None:
        if self._reason is None or self._rereads:
            return None
        decode_ms = (self._last_s - self._first_s) * 1000
        after_first = len(self._tokens) - 1
        logprobs = self._logprobs[: len(self._start.tokens) + len(self._tokens)]
        return RunResult(
            text="".join(self._parts),
            tokens=tuple(self._tokens),
            finish_reason=self._reason,
            prompt_tokens=len(self._entry.tokens),
            prefix_tokens=self._sequence.reused_tokens if self._sequence else None,
            logprobs=_rounded(logprobs) if self._job.logprobs else None,
            model=self.resident.name,
            revision=self.resident.revision,
            load_ms=self._entry.load_ms,
            tokenize_ms=self._entry.tokenize_ms,
            prefill_ms=_since_ms(self._sequence, self._first_s),
            decode_ms=decode_ms,
            stream_ms=self._stream_s * 1000,
            tpot_ms=decode_ms / after_first if after_first > 0 else None,
        )

    def _push(self, token: int) -> None:
        self._tokens.append(token)
        self._parts.append(self._stream.push(token))
        self._check_over()

    def _resume(self, start: Start) -> None:
        try:
            self._stream.resume(start.tokens, start.text)
        except ValueError:
            # a former attempt had emitted all, what it held back too, and died before it said so
            whole = TextStream(self.resident.tokenizer)
            spelt = "".join(map(whole.push, start.tokens)) + whole.finish()
            if spelt != start.text:
                raise
            self._reason = "length" if len(start.tokens) >= self._job.max_tokens else "eos"

    def _check_over(self) -> None:
        if self._reason is not None:
            return
        if self._stream.stopped:
            self._reason = "stop"
        elif len(self._start.tokens) + len(self._tokens) >= self._job.max_tokens:
            self._end("length")

    def _end(self, reason: str) -> None:
        self._reason = reason
        self._parts.append(self._stream.finish())


class Scoring:
    """A score run: log-probabilities of tokens 1…n-1, each given those before it."""

    def __init__(
        self,
        start: Start,
        job: Score,
        resident: Resident,
        entry: Entry,
        clock: Callable[[], float],
    ) -> None:
        """
        Raises:
            InvalidJob: the text has fewer than two tokens, or more than the context.
        """
        _check_fits(resident, "text", len(entry.tokens), 0)
        if len(entry.tokens) < 2:
            raise InvalidJob.of("text", job.text, "text of at least 2 tokens")
        self.id, self.resident = start.run, resident
        self._rank, self._entry, self._clock = RANKS[job.job_class], entry, clock
        self._logprobs: list[float] = []
        self._sequence: Sequence | None = None
        self._heard_s = clock()

    @property
    def request(self) -> Request | None:
        if len(self._logprobs) + 1 >= len(self._entry.tokens):
            return None
        return Request(tokens=self._entry.tokens, max_tokens=0, rank=self._rank, score=True)

    def asked(self, sequence: Sequence) -> None:
        self._sequence = sequence

    def hear(self, output: Output) -> None:
        self._logprobs += output.logprobs
        self._heard_s = self._clock()

    def tell(self) -> RunStep:
        return RunStep(run=self.id)

    def result(self) -> RunResult | None:
        if self.request is not None or self._sequence is None:
            return None
        return RunResult(
            prompt_tokens=len(self._entry.tokens),
            prefix_tokens=self._sequence.reused_tokens,
            logprobs=_rounded(self._logprobs),
            perplexity=perplexity(self._logprobs),
            model=self.resident.name,
            revision=self.resident.revision,
            load_ms=self._entry.load_ms,
            tokenize_ms=self._entry.tokenize_ms,
            prefill_ms=_since_ms(self._sequence, self._heard_s),
        )


TextRun = Answer | Scoring


def _since_ms(sequence: Sequence | None, now_s: float) -> float | None:
    """From a sequence's first step on, so that its wait for a row does not count."""
    if sequence is None or sequence.first_scheduled_s is None:
        return None
    return (now_s - sequence.first_scheduled_s) * 1000


def _rounded(logprobs: list[float]) -> tuple[float, ...]:
    return tuple(round(one, LOGPROB_DIGITS) for one in logprobs)


def _check_fits(resident: Resident, field: str, tokens: int, more: int) -> None:
    context = resident.capacity
    if tokens + more <= context:
        return
    if more >= context:
        raise InvalidJob.of("max_tokens", more, f"fewer than {context}, with the prompt")
    allowed = f"at most {context - more} tokens"
    if more:
        allowed += f", as max_tokens is {more} and the context {context}"
    if resident.capacity < resident.context:
        allowed += f"; memory here is short of the model's {resident.context}"
    raise InvalidJob.of(field, f"{tokens} tokens", allowed)
