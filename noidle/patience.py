"""Breaks a silence: who waits for a job that does not start is told what it waits for. Owns when
that is said; the words are the explanation's."""

import threading
from contextlib import suppress
from types import TracebackType
from typing import Self

from noidle.errors import NoidleError
from noidle.explanation import NO_ROUTER
from noidle.handle import Job
from noidle.results import JobState
from noidle.terminal import complain, note

SILENCE_S = 2.0


class Patience:
    """Around the wait for one job; `heard` says that there was news of it."""

    def __init__(self, job: Job) -> None:
        self._job = job
        self._timer = threading.Timer(SILENCE_S, self._speak)
        self._timer.daemon = True

    def __enter__(self) -> Self:
        self._timer.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: object, trace: TracebackType | None
    ) -> None:
        self.heard()

    def heard(self) -> None:
        self._timer.cancel()

    def _speak(self) -> None:
        # whoever waits hears of the trouble itself
        with suppress(NoidleError):
            found = self._job.explain()
            status = found.status
            if status.state is not JobState.HELD:
                return
            if found.unheard:
                complain(f"job {status.id} is held: {NO_ROUTER}")
            else:
                why = f": {status.why}" if status.why else ""
                note(f"job {status.id} is held{why}; noidle explain {status.id} tells more")
