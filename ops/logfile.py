"""Log files with a bound: a process writes by appending, the supervisor cuts. Owns rotation,
reading the end, and following."""

import shutil
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import IO

MAX_BYTES = 8 << 20
"""A log is cut at this size; one older part of the same size is kept."""
_FOLLOW_EVERY_S = 0.25
_BLOCK_BYTES = 1 << 16


class LogFile:
    """One process's log: NAME.log, and NAME.log.1 with what came before."""

    def __init__(self, path: Path, *, max_bytes: int = MAX_BYTES) -> None:
        self._path = path
        self._max_bytes = max_bytes

    def open(self) -> IO[bytes]:
        """For a child's output: appending, so that cutting under it leaves no hole."""
        return self._path.open("ab")

    def note(self, line: str) -> None:
        with self.open() as file:
            file.write(f"{line}\n".encode())

    def cut(self) -> bool:
        """Moves a log over its size aside; True if it did. The writer keeps its file, so the
        content is copied and the file emptied: a line written in that instant can be lost."""
        if self._size() < self._max_bytes:
            return False
        shutil.copyfile(self._path, self._path.with_name(f"{self._path.name}.1"))
        with self._path.open("r+b") as file:
            file.truncate(0)
        return True

    def last_lines(self, count: int) -> list[str]:
        """The newest lines, oldest first."""
        try:
            with self._path.open("rb") as file:
                return _tail(file, count)
        except FileNotFoundError:
            return []

    def follow(self, *, wait: Callable[[float], None] = time.sleep) -> Iterator[list[str]]:
        """What is appended from now on, in whole lines; an empty list at each quiet look."""
        position = self._size()
        rest = b""
        while True:
            if self._size() < position:
                # it was cut and begins anew
                position = 0
            fresh = self._read(position)
            position += len(fresh)
            *lines, rest = (rest + fresh).split(b"\n")
            yield [line.decode(errors="replace") for line in lines]
            if not fresh:
                wait(_FOLLOW_EVERY_S)

    def _size(self) -> int:
        return self._path.stat().st_size if self._path.exists() else 0

    def _read(self, position: int) -> bytes:
        try:
            with self._path.open("rb") as file:
                file.seek(position)
                return file.read(_BLOCK_BYTES)
        except FileNotFoundError:
            return b""


def _tail(file: IO[bytes], count: int) -> list[str]:
    position = file.seek(0, 2)
    data = b""
    while position > 0 and data.count(b"\n") <= count:
        size = min(_BLOCK_BYTES, position)
        position -= size
        file.seek(position)
        data = file.read(size) + data
    return [line.decode(errors="replace") for line in data.splitlines()[-count:]]
