"""Two processes that play. Owns that results are told as they come, and that no process is left
behind; knows nothing of what is played."""

import multiprocessing
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from typing import Any

PROCESSES = 2
TOLD_S = 15.0
"""What is under way is told so often."""
Task = tuple[str, Callable[..., Any], tuple[Any, ...]]
"""What it is called, and what is to be called with what."""


def run_all(tasks: Sequence[Task], say: Callable[[str], None]) -> Iterator[Any]:
    """Results in the order in which they end.

    Raises:
        Exception: whatever a task raised; the others end with it.
    """
    context = multiprocessing.get_context("spawn")
    pool = ProcessPoolExecutor(PROCESSES, mp_context=context, initializer=_leave_ends_to_parent)
    try:
        left: dict[Future[Any], str] = {
            pool.submit(call, *given): name for name, call, given in tasks
        }
        began_s = time.monotonic()
        while left:
            done, _ = wait(left, timeout=TOLD_S, return_when=FIRST_COMPLETED)
            for future in done:
                del left[future]
                yield future.result()
            if not done:
                under_way = "; ".join(list(left.values())[:PROCESSES])
                ended = len(tasks) - len(left)
                say(
                    f"{ended} of {len(tasks)} done in {time.monotonic() - began_s:.0f} s, "
                    f"under way: {under_way}"
                )
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        for child in multiprocessing.active_children():
            child.terminate()


def _leave_ends_to_parent() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)
