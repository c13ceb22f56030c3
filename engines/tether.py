"""Turns into the engine program, tied to the life of the process that started it, and the
first to go when the machine is out of memory.

Run as a file of its own, before anything else is imported: `tether.py PARENT_PID COMMAND…`.
Knows nothing but process ids. (A hook between fork and exec would do the same, but may
deadlock in a parent that has threads.)"""

import contextlib
import ctypes
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
"""From linux/prctl.h. The signal comes when the thread that started this process ends."""
OOM_SCORE = "500"
"""Of 1000: enough to go before its pool, which holds little."""


def main() -> None:
    parent_pid, command = int(sys.argv[1]), sys.argv[2:]
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        with contextlib.suppress(OSError), open("/proc/self/oom_score_adj", "w") as score:
            score.write(OOM_SCORE)
    # the parent may have died before the tie was made
    if os.getppid() != parent_pid:
        sys.exit("the process that started this engine is gone")
    try:
        os.execvp(command[0], command)  # noqa: S606  no shell is what is wanted
    except OSError as error:
        sys.exit(f"cannot start {command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
