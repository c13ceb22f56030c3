"""Signals as wake-ups of one loop: SIGINT, SIGTERM and SIGHUP ask it to end, SIGCHLD says that a
process ended. Knows nothing of what the loop does."""

import os
import select
import signal
from types import TracebackType
from typing import Any

_ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


class Wakeup:
    """Used in the main thread, as a context; the former handlers come back at its end."""

    def __init__(self) -> None:
        self.ending = 0
        """How many times the loop was asked to end."""
        self._former: dict[signal.Signals, Any] = {}
        self._reader, self._writer = os.pipe()
        os.set_blocking(self._reader, False)
        os.set_blocking(self._writer, False)
        self._former_fd = -1

    def __enter__(self) -> "Wakeup":
        self._former_fd = signal.set_wakeup_fd(self._writer, warn_on_full_buffer=False)
        for number in _ENDING:
            self._former[number] = signal.signal(number, self._ask_to_end)
        # Python calls the wake-up only for signals that have a handler
        self._former[signal.SIGCHLD] = signal.signal(signal.SIGCHLD, _ignore)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        signal.set_wakeup_fd(self._former_fd)
        for number, handler in self._former.items():
            signal.signal(number, handler)
        os.close(self._reader)
        os.close(self._writer)

    def wait(self, timeout_s: float) -> None:
        """Returns at the next signal, or when the time is over."""
        readable, _, _ = select.select([self._reader], [], [], max(0.0, timeout_s))
        if readable:
            os.read(self._reader, 4096)

    def _ask_to_end(self, *_: object) -> None:
        self.ending += 1


def _ignore(*_: object) -> None:
    return
