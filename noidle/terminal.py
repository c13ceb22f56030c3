"""What the producers' verbs print: text as it comes, progress, results. Answers go to standard
output, everything about them beside it, to standard error. Knows nothing of arguments."""

import re
import sys

from pydantic import BaseModel

from noidle.results import JobResult, StreamEvent, TrainReport

_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]|\r(?!\n)")


def write(text: str, end: str = "\n") -> None:
    """Shown at once, also through a pipe."""
    sys.stdout.write(text + end)
    sys.stdout.flush()


def write_answer(text: str, end: str = "") -> None:
    """What a model says; at a terminal without the characters that would steer it."""
    write(harmless(text) if sys.stdout.isatty() else text, end)


def harmless(text: str) -> str:
    """The text with each control character but line ends and tabs as U+FFFD."""
    return _CONTROL.sub("\N{REPLACEMENT CHARACTER}", text)


def write_json(model: BaseModel) -> None:
    """One line, without what is absent."""
    write(model.model_dump_json(exclude_none=True, by_alias=True))


def note(text: str, end: str = "\n") -> None:
    """For a person at a terminal only, so that scripts keep their logs short."""
    if sys.stderr.isatty():
        sys.stderr.write(text + end)
        sys.stderr.flush()


def complain(text: str) -> None:
    """One line on standard error."""
    sys.stderr.write(f"noidle: {text}\n")


class Progress:
    """Shows a job's events: its text on standard output, training steps on a line that is
    written over."""

    def __init__(self, *, stream: bool) -> None:
        self._stream = stream
        self._open_line = False
        self.wrote_text = False

    def show(self, event: StreamEvent) -> None:
        if event.text and self._stream:
            write_answer(event.text)
            self.wrote_text = True
        if event.step is not None:
            note(f"\r\033[K{_step(event)}", end="")
            self._open_line = True

    def close(self) -> None:
        """Ends what line is open."""
        if self.wrote_text:
            write("")
        if self._open_line:
            note("")
        self._open_line = False


def show_result(result: JobResult, *, text_is_out: bool) -> None:
    """A result for people: the answer, and beside it where and how fast it was made."""
    if result.train is not None:
        write(_training(result, result.train))
    elif result.perplexity is not None:
        write(f"perplexity {result.perplexity:.3f} over {len(result.logprobs or ())} tokens")
    elif not text_is_out:
        write_answer(result.text or "", end="\n")
    note(_summary(result))


def _step(event: StreamEvent) -> str:
    goal = f" of {event.goal}" if event.goal else ""
    loss = f", loss {event.loss:.3f}" if event.loss is not None else ""
    speed = f", {event.tokens_per_s:.0f} tokens/s" if event.tokens_per_s else ""
    return f"step {event.step}{goal}{loss}{speed}"


def _training(result: JobResult, train: TrainReport) -> str:
    losses = [
        ("before", train.held_out_loss_before),
        ("after", train.held_out_loss),
        ("of a unigram model", train.unigram_loss),
    ]
    told = ", ".join(f"{loss:.3f} {when}" for when, loss in losses if loss is not None)
    held_out = f"; held-out loss {told}" if told else ""
    return f"{result.model} {result.revision}: {train.steps} steps{held_out}"


def _summary(result: JobResult) -> str:
    times = result.times
    engine = f"{result.engine} (stand-in)" if result.stand_in else result.engine
    revision = f" {result.revision}" if result.revision else ""
    parts = [
        f"job {result.id}",
        f"{len(result.tokens)} tokens" if result.tokens else "",
        f"{result.prefix_tokens} of {result.prompt_tokens} prompt tokens read before"
        if result.prefix_tokens
        else "",
        f"{result.finish_reason}" if result.finish_reason else "",
        f"{result.model}{revision}",
        f"{engine} on {result.host}, {result.device}",
        f"first token after {times.ttft_ms:.0f} ms" if times.ttft_ms is not None else "",
        f"{times.tpot_ms:.1f} ms a token" if times.tpot_ms is not None else "",
        f"{times.total_ms / 1000:.2f} s in all" if times.total_ms is not None else "",
    ]
    return ", ".join(part for part in parts if part)
