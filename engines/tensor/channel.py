"""The engine's side of the pipes to its pool.

Owns standard input and output: a thread reads ops, events go out whole. Knows nothing of what
they ask for."""

import os
import queue
import sys
import threading
import time

from engines.protocol import AnyEvent, AnyOp, Log, ProtocolError, Stop, parse_op, to_line

EXIT_GRACE_S = 2.0


class Channel:
    """Takes the standard streams over at once, so that no library's print is read as an event."""

    def __init__(self) -> None:
        self._output = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
        self._lock = threading.Lock()
        self._ops: queue.SimpleQueue[AnyOp] = queue.SimpleQueue()

    def listen(self) -> None:
        threading.Thread(target=self._read, name="ops", daemon=True).start()

    def emit(self, event: AnyEvent) -> None:
        line = to_line(event)
        with self._lock:
            self._output.write(line)
            self._output.flush()

    def take(self, wait_s: float | None) -> list[AnyOp]:
        """What has arrived; where nothing has, waits that long for the first (None: for ever)."""
        ops = []
        try:
            ops.append(self._ops.get(timeout=wait_s) if wait_s != 0 else self._ops.get_nowait())
            while True:
                ops.append(self._ops.get_nowait())
        except queue.Empty:
            return ops

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            try:
                op = parse_op(line)
            except ProtocolError as error:
                self.emit(Log(level="error", message=f"an op was passed over: {error}"))
                continue
            self._ops.put(op)
            if isinstance(op, Stop):
                break
        self._ops.put(Stop())
        # a loop that hangs in a kernel does not keep the process alive
        time.sleep(EXIT_GRACE_S)
        os._exit(0)
