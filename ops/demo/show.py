"""What the demo shows while it runs: a progress bar of the training, and the answer that is
streamed. Plain lines where nobody looks at a terminal."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from noidle.results import StreamEvent

_PLAIN_EVERY = 0.25


class Show:
    """One terminal, or a file."""

    def __init__(self, console: Console) -> None:
        self._console = console

    def say(self, text: str) -> None:
        self._console.print(text, markup=False, soft_wrap=True)

    def stream(self, prompt: str, pieces: Iterable[str]) -> None:
        """One answer, as it comes."""
        self.say(f"one answer, streamed, to {prompt!r}:")
        for piece in pieces:
            self._console.print(piece, end="", markup=False, soft_wrap=True)
        self._console.print()

    @contextmanager
    def training(self, goal: int) -> Iterator["TrainingBar"]:
        columns = (
            TextColumn("training"),
            BarColumn(),
            TaskProgressColumn(),
            TextColumn("{task.fields[told]}"),
            TimeElapsedColumn(),
        )
        terminal = self._console.is_terminal
        with Progress(*columns, console=self._console, disable=not terminal) as progress:
            yield TrainingBar(progress, goal, None if terminal else self)


class TrainingBar:
    """The training's progress, also told to whoever asks how far it is."""

    def __init__(self, progress: Progress, goal: int, plain: Show | None) -> None:
        self._progress = progress
        self._task = progress.add_task("training", total=goal, told="waiting for a slot")
        self._goal = goal
        self._plain = plain
        self._said = 0.0
        self.share = 0.0
        self._sent = 0
        self._told = ""

    def show(self, event: StreamEvent) -> None:
        if event.step is None:
            return
        self.share = event.step / self._goal
        loss = "" if event.loss is None else f"loss {event.loss:.3f}"
        speed = "" if event.tokens_per_s is None else f"{event.tokens_per_s:.0f} tokens/s"
        self._told = ", ".join(part for part in (loss, speed) if part)
        self._refresh()
        if self._plain is not None and self.share >= self._said + _PLAIN_EVERY:
            self._said = self.share
            self._plain.say(f"training: step {event.step} of {self._goal}, {self._told}")

    def sent(self, count: int) -> None:
        self._sent = count
        self._refresh()

    def _refresh(self) -> None:
        told = f"{self._told}; {self._sent} other jobs sent"
        self._progress.update(self._task, completed=self.share * self._goal, told=told)
