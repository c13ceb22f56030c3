"""One supervisor a data directory. The kernel holds the lock and drops it with its process, so
a lock file left by a dead one is never in the way."""

import contextlib
import fcntl
import os
import time
from pathlib import Path
from typing import IO

from noidle.errors import NoidleError

# a command that looks who holds the lock has it for an instant itself
_TRIES = 5
_RETRY_S = 0.05


class AlreadyUp(NoidleError):
    """Another supervisor, process `pid`, runs on this data directory."""

    def __init__(self, message: str, *, pid: int | None = None) -> None:
        super().__init__(message)
        self.pid = pid


class DataLock:
    """Held from `take` until `release` or the end of the process."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._file: IO[str] | None = None

    def take(self) -> None:
        """
        Raises:
            AlreadyUp: another process holds the lock.
        """
        file = self._path.open("a+")
        if not _flock(file, fcntl.LOCK_EX, tries=_TRIES):
            file.close()
            pid = _written_pid(self._path)
            raise AlreadyUp(
                f"a cluster is up on {self._path.parent} (process {pid or 'unknown'}); "
                "see it with `noidle status`, end it with `noidle down`, or give this one "
                "a data directory of its own with --data",
                pid=pid,
            )
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        self._file = file

    def release(self) -> None:
        if self._file is not None:
            self._file.close()
            self._file = None


def holder(path: Path) -> int | None:
    """The process that holds the lock now; None where nobody does."""
    try:
        with path.open() as file:
            if _flock(file, fcntl.LOCK_SH, tries=1):
                return None
    except OSError:
        return None
    return _written_pid(path)


def _flock(file: IO[str], kind: int, tries: int) -> bool:
    for remaining in reversed(range(tries)):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(file, kind | fcntl.LOCK_NB)
            return True
        if remaining:
            time.sleep(_RETRY_S)
    return False


def _written_pid(path: Path) -> int | None:
    text = path.read_text().strip()
    return int(text) if text.isdigit() else None
