"""noidle down: ends what `noidle up` started on this host."""

import os
import signal
import time
from collections.abc import Callable
from typing import Annotated

import typer

from noidle.errors import NoidleError
from ops import leftovers
from ops.commands import output
from ops.commands.options import Data, Json, data_dir
from ops.data_dir import DataDir
from ops.lock import DataLock, holder

_LOOK_EVERY_S = 0.1


class StillUp(NoidleError):
    """The supervisor did not end in time."""


def down(
    data: Data = None,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the end.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """End the cluster on this host in order; what waits is kept for the next start."""
    place = data_dir(data)
    pid, cleared = end_cluster(place, wait_s)
    if json:
        output.as_json({"ended": pid, "cleared": cleared})
    elif pid is None and not cleared:
        output.line(f"no cluster is up on {place.root}")
    else:
        output.line("everything has ended")


def end_cluster(place: DataDir, wait_s: float = 60.0) -> tuple[int | None, list[str]]:
    """Returns the supervisor that was told to end, and what a killed one had left running.

    Raises:
        StillUp: it did not end within `wait_s`.
    """
    pid = holder(place.lock)
    if pid is not None:
        os.kill(pid, signal.SIGTERM)
        _wait_for_end(pid, lambda: holder(place.lock) == pid, wait_s)
    return pid, _clear_leftovers(place) if place.root.exists() else []


def _wait_for_end(pid: int, up: Callable[[], bool], wait_s: float) -> None:
    end_s = time.monotonic() + wait_s
    while up():
        if time.monotonic() > end_s:
            raise StillUp(
                f"process {pid} has not ended after {wait_s:.0f} s; wait longer with --wait, or "
                f"end it with `kill -9 {pid}` and run `noidle down` again to clear up"
            )
        time.sleep(_LOOK_EVERY_S)


def _clear_leftovers(place: DataDir) -> list[str]:
    """What a supervisor that was killed left running."""
    lock = DataLock(place.lock)
    lock.take()
    try:
        place.cluster_file.unlink(missing_ok=True)
        return leftovers.clear(place.root)
    finally:
        lock.release()
