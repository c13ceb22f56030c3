"""How a pool ends when it is told to: nothing is lost, nothing is left running.

Owns the order of the end and the signals that begin it. The first SIGTERM or SIGINT gives jobs
in flight their grace; a second one, or SIGQUIT, hands them back at once. Knows nothing of how a
job is run."""

import logging
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Protocol

from noidle.errors import ClusterUnavailable
from routing.board import Board
from workers.runs import Runs

LOG = logging.getLogger("noidle.pool")
LAST_WORD_S = 2.0
"""What the engine gets to save a training slice, once its runs are told to go."""
LAST_TURN_S = 2.0
HURRY_S = 3.0
"""After the second signal the process ends within this, whatever still hangs."""
_LOOK_S = 0.05


class Parts(Protocol):
    """What the end of a pool needs of the pool."""

    def refuse_work(self) -> None:
        """From now on no lease is claimed, and routers are told."""

    def stop_consuming(self) -> None: ...

    def hand_back(self, wait_s: float) -> None: ...

    def end(self) -> None:
        """Lets the main thread go."""


class Drain:
    """Begins in a thread of its own: a signal's handler may do next to nothing."""

    def __init__(
        self,
        parts: Parts,
        board: Board,
        runs: Runs,
        *,
        pool: str,
        grace_s: float,
        leave: Callable[[int], None] = os._exit,
    ) -> None:
        self._parts = parts
        self._board = board
        self._runs = runs
        self._pool = pool
        self._grace_s = grace_s
        self._leave = leave
        self._hurry = threading.Event()
        self._signals, self._handler_end = os.pipe()
        os.set_blocking(self._handler_end, False)
        threading.Thread(target=self._listen, name="drain", daemon=True).start()

    def install_signals(self) -> None:
        """In the main thread."""
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._note)
        # a closed terminal ends a pool that was started in it, unless by nohup
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._note)

    def begin(self) -> None:
        """As the first signal does; from any thread, at any time."""
        os.write(self._handler_end, bytes([signal.SIGTERM]))

    def _note(self, number: int, _frame: object) -> None:
        os.write(self._handler_end, bytes([number]))

    def _listen(self) -> None:
        begun = False
        while number := os.read(self._signals, 1):
            if begun or number[0] == signal.SIGQUIT:
                self._hurry.set()
                self._last_resort()
            if not begun:
                begun = True
                threading.Thread(target=self._run, name="drain-run", daemon=True).start()

    def _last_resort(self) -> None:
        timer = threading.Timer(HURRY_S, self._leave, [1])
        timer.daemon = True
        timer.start()

    def _run(self) -> None:
        # 1. nothing new: routers lease nothing more, leases not claimed go back, queues rest
        LOG.info(
            "the pool drains: up to %g s for %d jobs",
            self._grace_s,
            len(self._runs),
            extra={"event": "drain", "pool": self._pool},
        )
        self._parts.refuse_work()
        self._parts.stop_consuming()
        self._tell("leases not claimed", lambda: self._board.release_unclaimed(self._pool))
        # 2. what runs may end
        self._wait(self._grace_s)
        # 3. what did not end goes back, with what it emitted
        if left := len(self._runs):
            LOG.info("%d jobs go back to the held ones", left, extra={"event": "handed_back"})
            self._parts.hand_back(0.0 if self._hurry.is_set() else LAST_WORD_S)
            self._runs.wait_until_empty(LAST_WORD_S + LAST_TURN_S)
        # 4. what was leased before routers heard of the drain
        self._tell("leases not claimed", lambda: self._board.release_unclaimed(self._pool))
        self._parts.end()

    def _wait(self, limit_s: float) -> None:
        until = time.monotonic() + limit_s
        while not self._hurry.is_set() and time.monotonic() < until:
            if self._runs.wait_until_empty(_LOOK_S):
                return

    def _tell(self, what: str, call: Callable[[], object]) -> None:
        try:
            call()
        except ClusterUnavailable as error:
            LOG.warning("%s run out by themselves: %s", what, error)
