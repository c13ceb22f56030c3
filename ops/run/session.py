"""Asks an open model, one text at a time.

Owns the loop from tokens to text that is shown as it comes, and how long each part of it took.
Knows nothing of where texts come from or how they are shown."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial

from noidle.errors import InvalidJob
from ops.run.figures import AnswerFigures
from ops.run.opening import Opened
from tensor_llm.sampling import Sampling
from tensor_llm.serving.core import Core, Output
from tensor_llm.serving.opening import open_core
from tensor_llm.serving.request import Request
from tensor_llm.serving.sequence import Sequence as Running
from tensor_llm.text_stream import TextStream

Show = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Wish:
    """How a text is to go on."""

    # absent: as long as the context allows
    max_tokens: int | None = None
    sampling: Sampling = field(default_factory=Sampling)
    stop: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a model said."""

    text: str
    tokens: tuple[int, ...]
    # stop, length, eos, or interrupted
    finish_reason: str
    figures: AnswerFigures


@dataclass(frozen=True, slots=True, kw_only=True)
class Scored:
    """How likely a model finds a text."""

    tokens: tuple[int, ...]
    # of tokens 1…n-1, each given those before it
    logprobs: tuple[float, ...]
    figures: AnswerFigures


class Session:
    """Keys and values of a text stay, so that the next one which begins alike is read faster."""

    def __init__(
        self,
        opened: Opened,
        kv_tokens: int,
        clock: Callable[[], float] = time.perf_counter,
    ) -> None:
        model = opened.model
        self._tokenizer = model.tokenizer
        self._clock = clock
        self.context = min(model.config.context, kv_tokens)
        self._core: Core = open_core(
            model, device=opened.choice.device, rows=1, kv_tokens=self.context
        )
        ends = model.config.eos_tokens or (model.tokenizer.eos_token,)
        self._ends = frozenset(end for end in ends if end is not None)

    def answer(
        self,
        prompt: Sequence[int],
        wish: Wish,
        *,
        tokenize_ms: float,
        show: Show,
        stopped: Callable[[], bool] = lambda: False,
    ) -> Answer:
        """Shows text as soon as it is certain; looks between steps whether it is to stop.

        Raises:
            InvalidJob: prompt and answer exceed the context.
        """
        request = Request(
            tokens=tuple(prompt),
            max_tokens=tokens_left(len(prompt), wish.max_tokens, self.context),
            sampling=wish.sampling,
            rank=0,
            eos_tokens=self._ends,
        )
        talk = _Talk(TextStream(self._tokenizer, wish.stop), show, self._clock)
        began_s, running = self._clock(), self._core.add(request)
        try:
            while talk.reason is None:
                if stopped():
                    talk.reason = "interrupted"
                for output in self._core.step() if talk.reason is None else ():
                    talk.hear(output)
        finally:
            self._core.drop(running)
        talk.finish()
        return Answer(
            text=talk.text,
            tokens=tuple(talk.tokens),
            finish_reason=talk.reason,
            figures=self._figures(running, began_s, tokenize_ms, talk),
        )

    def score(self, tokens: Sequence[int], *, tokenize_ms: float) -> Scored:
        """
        Raises:
            InvalidJob: fewer than two tokens, or more than the context.
        """
        if not 2 <= len(tokens) <= self.context:
            raise InvalidJob.of("text", f"{len(tokens)} tokens", f"2 to {self.context} tokens")
        talk = _Talk(TextStream(self._tokenizer), lambda _: None, self._clock)
        began_s = self._clock()
        running = self._core.add(Request(tokens=tuple(tokens), max_tokens=0, rank=0, score=True))
        try:
            while talk.reason is None:
                for output in self._core.step():
                    talk.hear(output)
        finally:
            self._core.drop(running)
        return Scored(
            tokens=tuple(tokens),
            logprobs=tuple(talk.logprobs),
            figures=self._figures(running, began_s, tokenize_ms, talk),
        )

    def close(self) -> None:
        self._core.close()

    def _figures(
        self, running: Running, began_s: float, tokenize_ms: float, talk: "_Talk"
    ) -> AnswerFigures:
        ended_s = self._clock()
        first_s = talk.first_s or ended_s
        return AnswerFigures(
            prompt_tokens=len(running.request.tokens),
            prefix_tokens=running.reused_tokens,
            tokens=len(talk.tokens),
            tokenize_ms=tokenize_ms,
            prefill_ms=1000 * (first_s - began_s),
            decode_ms=1000 * (ended_s - first_s - talk.stream_s),
            stream_ms=1000 * talk.stream_s,
        )


def tokens_left(prompt_tokens: int, max_tokens: int | None, context: int) -> int:
    """How many tokens an answer may have.

    Raises:
        InvalidJob: prompt and answer exceed the context.
    """
    left = context - prompt_tokens
    if left < 1:
        allowed = f"fewer than the context's {context} tokens"
        raise InvalidJob.of("prompt", f"{prompt_tokens} tokens", allowed)
    if max_tokens is not None and max_tokens > left:
        allowed = (
            f"at most {left}: the prompt has {prompt_tokens} of the context's {context} tokens"
        )
        raise InvalidJob.of("max_tokens", max_tokens, allowed)
    return left if max_tokens is None else max_tokens


class _Talk:
    """What came of one text so far."""

    def __init__(self, stream: TextStream, show: Show, clock: Callable[[], float]) -> None:
        self._stream, self._show, self._clock = stream, show, clock
        self.text = ""
        self.tokens: list[int] = []
        self.logprobs: list[float] = []
        self.reason: str | None = None
        self.first_s: float | None = None
        self.stream_s = 0.0

    def hear(self, output: Output) -> None:
        if output.error is not None:
            raise output.error
        if self.first_s is None and (output.tokens or output.finished):
            self.first_s = self._clock()
        self.logprobs += output.logprobs
        for token in output.tokens:
            self.tokens.append(token)
            self._say(partial(self._stream.push, token))
            if self._stream.stopped:
                self.reason = "stop"
                return
        self.reason = output.finished

    def finish(self) -> None:
        self._say(self._stream.finish)

    def _say(self, part: Callable[[], str]) -> None:
        began_s = self._clock()
        text = part()
        self.text += text
        if text:
            self._show(text)
        self.stream_s += self._clock() - began_s
