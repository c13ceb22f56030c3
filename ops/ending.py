"""Ends a cluster of this host from outside its supervisor, and clears up where that was killed."""

import os
import signal
import time
from dataclasses import dataclass

from noidle.errors import NoidleError
from ops import cluster_file, leftovers
from ops.data_dir import DataDir
from ops.lock import DataLock, holder

_LOOK_EVERY_S = 0.1


class StillUp(NoidleError):
    """The supervisor did not end in time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class End:
    """What ended."""

    # process number; absent: none was up
    supervisor: int | None
    # processes that a supervisor which was killed had left
    cleared: tuple[str, ...]


def end_cluster(data: DataDir, wait_s: float = 60.0) -> End:
    """Returns when nothing of the cluster lives any more; ending what is not up is no error.

    Raises:
        StillUp: the supervisor lives on after `wait_s`.
    """
    pid = holder(data.lock)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        _wait_for_end(data, pid, wait_s)
    cleared = _clear_leftovers(data) if data.root.exists() else []
    return End(supervisor=pid, cleared=tuple(cleared))


def _wait_for_end(data: DataDir, pid: int, wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while holder(data.lock) == pid:
        if time.monotonic() > end_s:
            raise StillUp(
                f"process {pid} has not ended after {wait_s:.0f} s; wait longer with --wait, or "
                f"end it with `kill -9 {pid}` and run `noidle down` again to clear up"
            )
        time.sleep(_LOOK_EVERY_S)


def _clear_leftovers(data: DataDir) -> list[str]:
    lock = DataLock(data.lock)
    lock.take()
    try:
        cluster_file.remove(data)
        return leftovers.clear(data.root)
    finally:
        lock.release()
