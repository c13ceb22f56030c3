"""A folder, and an end, that leave nothing behind. Knows nothing of what is measured."""

import shutil
import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import FrameType

_ENDS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="noidle-bench-"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def end_cleanly() -> None:
    """Signals that end a process end this one as Ctrl-C does."""
    for one in _ENDS:
        signal.signal(one, _end)


def _end(number: int, frame: FrameType | None) -> None:
    """A second Ctrl-C must not leave processes behind."""
    for one in _ENDS:
        signal.signal(one, signal.SIG_IGN)
    sys.stderr.write("ending\n")
    raise KeyboardInterrupt
