"""Who may run now when several workers of pytest-xdist share a machine: many at once, or one test
alone. Knows nothing of what the tests do."""

import fcntl
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class Turns:
    """Locks in a folder that all workers of a run know; the kernel lets go of those of the dead."""

    def __init__(self, folder: Path) -> None:
        self._door = folder / "door"
        self._room = folder / "room"

    @contextmanager
    def take(self, *, alone: bool) -> Iterator[None]:
        """Waits until nobody is there who wants to be alone, or until nobody is there at all."""
        with self._door.open("wb") as door, self._room.open("wb") as room:
            # whoever waits for an empty room stands in the door, so that nobody overtakes
            fcntl.flock(door, fcntl.LOCK_EX)
            fcntl.flock(room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
            fcntl.flock(door, fcntl.LOCK_UN)
            yield
