"""Ends what a supervisor left behind that was killed: every process marked with its data
directory. Knows nothing of what they were."""

import contextlib
from collections.abc import Callable
from pathlib import Path

import psutil

from ops.child import MARK

_GRACE_S = 5.0


def clear(root: Path) -> list[str]:
    """Ends them, with a grace so that a server can write its file; returns their commands.

    Called only while the data directory's lock is held, so that none of them is anybody's.
    """
    found = _marked(root)
    for process in found:
        _quietly(process.terminate)
    _, stubborn = psutil.wait_procs(found, timeout=_GRACE_S)
    for process in stubborn:
        _quietly(process.kill)
    psutil.wait_procs(stubborn, timeout=_GRACE_S)
    return [f"process {process.pid}" for process in found]


def _marked(root: Path) -> list[psutil.Process]:
    me = psutil.Process()
    spared = {me.pid, *(parent.pid for parent in me.parents())}
    return [
        process
        for process in psutil.process_iter()
        if process.pid not in spared and _mark(process) == str(root)
    ]


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        # another user's, or gone
        return None


def _quietly(end: Callable[[], None]) -> None:
    with contextlib.suppress(psutil.NoSuchProcess):
        end()
