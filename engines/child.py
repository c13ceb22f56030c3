"""One engine program as a child process: its pipes, its threads, its end.

Owns a single life, from start to exit; EngineProcess strings lives together. Knows nothing of
what the lines mean."""

import contextlib
import logging
import os
import queue
import signal
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

from engines.program import Program
from engines.protocol import MAX_LINE_BYTES, ProtocolError

LOG = logging.getLogger("noidle.engine")
_TETHER = str(Path(__file__).with_name("tether.py"))
_STDERR_LINE_BYTES = 8192
_JOIN_S = 1.0


class Child:
    """Starts in a session of its own, so that signals to the worker's group pass it by."""

    def __init__(self, program: Program, variables: Mapping[str, str], label: str) -> None:
        self._label = label
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", _TETHER, str(os.getpid()), *program.command],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=program.folder,
            env=dict(variables),
            start_new_session=True,
        )
        self.pid = self._process.pid
        self.stderr_tail: deque[str] = deque(maxlen=20)
        # a hung child does not read: whoever sends must not hang with it
        self._outgoing: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
        self._ended = threading.Lock()
        self._reaped = False
        self._threads = [self._thread(self._write, "writer"), self._thread(self._log, "stderr")]

    def send(self, line: bytes) -> None:
        """Queues the line; lost if the child ends first."""
        self._outgoing.put(line)

    def end_input(self) -> None:
        self._outgoing.put(None)

    def lines(self) -> Iterator[bytes]:
        """Lines of its output until it ends; what it was writing when it died is no line.

        Raises:
            ProtocolError: a line is too long.
        """
        assert self._process.stdout is not None
        while line := self._process.stdout.readline(MAX_LINE_BYTES + 1):
            if len(line) > MAX_LINE_BYTES:
                raise ProtocolError(f"a line of more than {MAX_LINE_BYTES} bytes")
            if line.endswith(b"\n"):
                yield line

    def kill(self) -> None:
        """Ends it and whatever it started. Safe at any time, also long after its end."""
        with self._ended:
            if not self._reaped:
                with contextlib.suppress(ProcessLookupError, PermissionError):
                    os.killpg(self.pid, signal.SIGKILL)

    def reap(self) -> int:
        """Kills what is left of its group and waits; its exit status, negative for a signal."""
        self.kill()
        if sys.platform == "linux":
            # the number stays taken until the lock is held, so `kill` never meets another's group
            os.waitid(os.P_PID, self.pid, os.WEXITED | os.WNOWAIT)
        with self._ended:
            code = self._process.wait()
            self._reaped = True
        self.end_input()
        for thread in self._threads:
            thread.join(_JOIN_S)
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        return code

    def _thread(self, target: Callable[[], None], name: str) -> threading.Thread:
        thread = threading.Thread(target=target, name=f"{self._label}-{name}", daemon=True)
        thread.start()
        return thread

    def _write(self) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            while (line := self._outgoing.get()) is not None:
                pipe.write(line)
                pipe.flush()
        except BrokenPipeError:
            pass  # the reader sees the end too, and decides
        finally:
            with contextlib.suppress(BrokenPipeError):
                pipe.close()

    def _log(self) -> None:
        pipe = self._process.stderr
        assert pipe is not None
        while line := pipe.readline(_STDERR_LINE_BYTES):
            text = line.decode(errors="replace").rstrip()
            self.stderr_tail.append(text)
            LOG.info("%s: %s", self._label, text, extra={"event": "engine_stderr"})
