"""Slow work beside the loop: loading, tokenising, saving.

Owns one thread and the knowledge whether its work still moves, so that runs which wait for it
keep their leases and a stuck disk does not. Knows nothing of what it carries."""

import queue
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Generic, TypeVar

PATIENCE_S = 60.0
"""Longest time between two signs of life of the work under way."""

Result = TypeVar("Result")


class Progress:
    """Signs of life; marked from the porter's thread, read from the loop's."""

    def __init__(self, clock: Callable[[], float], patience_s: float) -> None:
        self._clock = clock
        self._marked_s = clock()
        self._patience_s = patience_s

    def mark(self) -> None:
        self._marked_s = self._clock()

    @contextmanager
    def patient(self, patience_s: float) -> Iterator[None]:
        """Around work that gives no sign of life for longer than is usual."""
        usual_s, self._patience_s = self._patience_s, patience_s
        self.mark()
        try:
            yield
        finally:
            self.mark()
            self._patience_s = usual_s

    @property
    def moving(self) -> bool:
        return self._clock() - self._marked_s < self._patience_s


class Task(Generic[Result]):
    """Work handed over; `future` ends with its result."""

    def __init__(self, work: Callable[[Progress], Result]) -> None:
        self.future: Future[Result] = Future()
        self._work = work

    def carry_out(self, progress: Progress) -> None:
        progress.mark()
        try:
            self.future.set_result(self._work(progress))
        except BaseException as error:  # noqa: BLE001  whoever waits for it gets it
            self.future.set_exception(error)


class Porter:
    """Does one task after the other."""

    def __init__(
        self, name: str, clock: Callable[[], float], patience_s: float = PATIENCE_S
    ) -> None:
        self._progress = Progress(clock, patience_s)
        self._tasks: queue.SimpleQueue[Task[object]] = queue.SimpleQueue()
        self._waiting = 0
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def submit(self, work: Callable[[Progress], Result]) -> Future[Result]:
        task = Task(work)
        self._waiting += 1
        task.future.add_done_callback(self._count)
        self._tasks.put(task)  # type: ignore[arg-type]  # its result goes to its own future
        return task.future

    @property
    def busy(self) -> bool:
        return self._waiting > 0

    @property
    def moving(self) -> bool:
        """Whether work is under way and showed signs of life."""
        return self.busy and self._progress.moving

    def _count(self, _: object) -> None:
        self._waiting -= 1

    def _run(self) -> None:
        while True:
            self._tasks.get().carry_out(self._progress)
