"""A bar for what takes long, at a terminal only. Knows nothing of what is done."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager

Told = Callable[[int, int, str], None]
"""Takes the bytes done so far, all of them, and what was done last."""


@contextmanager
def progress(words: str) -> Iterator[Told]:
    """On standard error, so that what is written for programs stays clean."""
    if not sys.stderr.isatty():
        yield lambda _done, _total, _what: None
        return
    from rich.console import Console
    from rich.progress import (
        BarColumn,
        DownloadColumn,
        Progress,
        TextColumn,
        TimeRemainingColumn,
        TransferSpeedColumn,
    )

    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        DownloadColumn(binary_units=True),
        TransferSpeedColumn(),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task(words, total=None)
        yield lambda done, total, _: bar.update(task, completed=done, total=total)
