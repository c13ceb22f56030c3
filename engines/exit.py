"""How a life of an engine ended, and when the next one begins.

Owns the wording of an end and the backoff between lives; knows nothing of processes."""

import signal
from collections.abc import Callable
from dataclasses import dataclass

FIRST_WAIT_S = 0.2
LONGEST_WAIT_S = 30.0
STEADY_S = 60.0
"""A life of this length ends a row of failures, and so does one in which something came of a run:
an engine that works must not wait long because of a job that crashed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Exit:
    """The end of one life; nothing more comes from it."""

    generation: int
    # absent: the program could not be started
    pid: int | None
    # exit status, negative for a signal
    code: int | None
    # in words, with the last line of its log where that helps
    reason: str
    stderr_tail: tuple[str, ...]
    said_hello: bool
    # it was asked to stop
    expected: bool
    # short lives in a row, this one included
    failures: int
    # absent: it stays down
    restart_in_s: float | None


class Lives:
    """Counts lives and spaces them: the wait doubles with each short one."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._began = clock()
        self.count = 0
        self._failures = 0

    def begin(self) -> None:
        self.count += 1
        self._began = self._clock()

    def end(
        self,
        *,
        pid: int | None,
        code: int | None,
        reason: str,
        tail: tuple[str, ...],
        said_hello: bool,
        worked: bool,
        expected: bool,
    ) -> Exit:
        steady = worked or (said_hello and self._clock() - self._began >= STEADY_S)
        self._failures = 1 if steady else self._failures + 1
        wait_s = min(LONGEST_WAIT_S, FIRST_WAIT_S * 2 ** (self._failures - 1))
        return Exit(
            generation=self.count,
            pid=pid,
            code=code,
            reason=reason,
            stderr_tail=tail,
            said_hello=said_hello,
            expected=expected,
            failures=self._failures,
            restart_in_s=None if expected else wait_s,
        )


def describe(code: int, killed: str | None, tail: tuple[str, ...]) -> str:
    """The end in words: why we killed it, or how it died by itself."""
    if killed:
        return f"was killed: {killed}"
    if code == -signal.SIGKILL:
        return "was killed from outside; the kernel does that when memory runs out"
    said = f": {tail[-1]}" if tail else ""
    if code < 0:
        return f"died of {signal.Signals(-code).name}{said}"
    return f"exited with status {code}{said}"
