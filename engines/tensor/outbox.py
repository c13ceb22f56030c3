"""What the loop has to tell its pool at the end of a pass.

Owns the order: one step for everything that moved, then how runs ended. Knows nothing of what
runs do."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from engines.protocol import AnyEvent, Failed, RunStep, Step
from engines.tensor.fault import to_job_error
from tensor_llm.serving.fault import is_fatal


class Run(Protocol):
    """Anything that was started and has not ended."""

    @property
    def id(self) -> str: ...

    def tell(self) -> RunStep:
        """What it did since it last told."""


class Outbox:
    """Collects during a pass, and empties itself at its end."""

    def __init__(self, emit: Callable[[AnyEvent], None]) -> None:
        self._emit = emit
        self._moved: dict[str, Run] = {}
        self._after: list[AnyEvent] = []
        self._loaded: tuple[str, ...] = ()
        # runs that ended in this pass
        self.ended: list[str] = []

    def moved(self, run: Run) -> None:
        self._moved[run.id] = run

    def say(self, event: AnyEvent) -> None:
        """Goes out after this pass's step."""
        self._after.append(event)

    def end(self, run: Run, event: AnyEvent) -> None:
        """The last event of a run; what it did before is told first."""
        self.moved(run)
        self._after.append(event)
        self.ended.append(run.id)

    def fail(self, run: Run, error: BaseException) -> None:
        """Ends the run alone.

        Raises:
            BaseException: the error itself, where the process cannot go on; its end hands every
                run back.
        """
        if is_fatal(error):
            raise error
        self.end(run, Failed(run=run.id, error=to_job_error(error)))

    def flush(
        self,
        loaded: tuple[str, ...],
        batch: int,
        kv: tuple[int, int] | None,
        working_bytes: int | None = None,
    ) -> None:
        if self._moved or loaded != self._loaded:
            self._loaded = loaded
            total, free = kv or (None, None)
            runs = tuple(run.tell() for run in self._moved.values())
            self._emit(
                Step(
                    runs=runs,
                    loaded=loaded,
                    batch=batch or None,
                    kv_tokens_total=total,
                    kv_tokens_free=free,
                    working_bytes=working_bytes,
                )
            )
        for event in self._after:
            self._emit(event)
        self._moved.clear()
        self._after.clear()

    def clear(self) -> None:
        """Everybody has seen who ended."""
        self.ended.clear()


@dataclass(frozen=True, slots=True)
class Refused:
    """A run that never began."""

    id: str

    def tell(self) -> RunStep:
        return RunStep(run=self.id)
