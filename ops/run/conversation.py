"""A conversation at a terminal: who says what in turn, until /exit or Ctrl-D.

Owns the turns and what Ctrl-C means in each. Knows nothing of how a model answers."""

import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import TYPE_CHECKING

from noidle.errors import InvalidJob
from noidle.jobs import Message, Role

if TYPE_CHECKING:
    from ops.run.session import Answer

ASK = "> "
EXIT, CLEAR = "/exit", "/clear"
HELP = f"{EXIT} or Ctrl-D ends, {CLEAR} starts anew, Ctrl-C stops an answer"

Reply = Callable[[Sequence[Message], Callable[[], bool]], "Answer"]
"""Answers the messages, showing text as it comes, until told to stop."""


def converse(
    reply: Reply,
    system: str | None,
    *,
    ask: Callable[[str], str] = input,
    say: Callable[[str], None],
) -> None:
    """
    Raises:
        KeyboardInterrupt: Ctrl-C twice in a row where the person was asked.
    """
    opening = [Message(role=Role.SYSTEM, content=system)] if system is not None else []
    turns: list[Message] = []
    say(HELP)
    for line in _lines(ask, say):
        if line == EXIT:
            return
        if line == CLEAR:
            turns.clear()
            continue
        asked = [*turns, Message(role=Role.USER, content=line)]
        try:
            with _stoppable() as stopped:
                answer = reply([*opening, *asked], stopped)
        except InvalidJob as error:
            # the conversation stands as it was before
            say(f"{error}; {CLEAR} starts anew")
            continue
        turns = [*asked, Message(role=Role.ASSISTANT, content=answer.text)]


def _lines(ask: Callable[[str], str], say: Callable[[str], None]) -> Iterator[str]:
    """What the person types, without what is empty."""
    with suppress(ImportError):
        # gives `input` a line that can be edited, and the lines before
        import readline  # noqa: F401
    interrupted = False
    while True:
        try:
            # bytes that are no UTF-8 come as halves of surrogate pairs, which are no text
            line = ask(ASK).strip().encode(errors="surrogateescape").decode(errors="replace")
        except EOFError:
            say("")
            return
        except KeyboardInterrupt:
            if interrupted:
                raise
            interrupted = True
            say(f"\n{HELP}; Ctrl-C once more leaves")
            continue
        interrupted = False
        if line:
            yield line


@contextmanager
def _stoppable() -> Iterator[Callable[[], bool]]:
    """Whether Ctrl-C was pressed; the second one is not waited for."""
    asked = threading.Event()
    before = signal.getsignal(signal.SIGINT)

    def stop(number: int, frame: FrameType | None) -> None:  # noqa: ARG001
        if asked.is_set():
            raise KeyboardInterrupt
        asked.set()

    signal.signal(signal.SIGINT, stop)
    try:
        yield asked.is_set
    finally:
        signal.signal(signal.SIGINT, before)
