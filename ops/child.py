"""One supervised process: how it is started, watched, ended and restarted. Knows nothing of
what the processes do."""

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from ops.logfile import LogFile

_PR_SET_PDEATHSIG = 1
_FIRST_PAUSE_S = 0.2
_LONGEST_PAUSE_S = 30.0
# one that lived this long starts again with the first pause
_SETTLED_S = 30.0
_KILL_S = 5.0

MARK = "_NOIDLE_CLUSTER"
"""Environment variable that names the data directory in every process under a supervisor."""


class ChildState(StrEnum):
    """Where a supervised process stands."""

    RUNNING = "running"  # it lives
    PAUSED = "paused"  # it died and is started again after a pause
    ENDED = "ended"  # it was told to end, or was never started


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSpec:
    """A process as the plan wants it."""

    name: str
    command: tuple[str, ...]
    environment: dict[str, str] = field(default_factory=dict)
    # seconds between SIGTERM and SIGKILL
    grace_s: float = 10.0
    # what the kernel sends it when the supervisor dies
    orphan_signal: signal.Signals = signal.SIGTERM


class Child:
    """A process and its restarts. All methods are called from the supervisor's main thread: the
    kernel sends the orphan signal when the *thread* that started the process ends."""

    def __init__(self, spec: ChildSpec, *, folder: Path, log: Path) -> None:
        self.spec = spec
        self.state = ChildState.ENDED
        self.restarts = 0
        self.deaths = 0
        self.last_exit: str | None = None
        self.log = LogFile(log)
        self._folder = folder
        self._process: subprocess.Popen[bytes] | None = None
        self._started_s = 0.0
        self._pause_s = _FIRST_PAUSE_S
        self._due_s = 0.0

    def age_s(self, now_s: float) -> float:
        """Seconds since its last start."""
        return now_s - self._started_s

    @property
    def pid(self) -> int | None:
        """Its number while it runs."""
        if self._process is None or self.state is not ChildState.RUNNING:
            return None
        return self._process.pid

    def start(self, now_s: float) -> None:
        with self.log.open() as output:
            self._process = subprocess.Popen(
                self.spec.command,
                cwd=self._folder,
                env={**self.spec.environment, MARK: str(self._folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                # away from the terminal's Ctrl-C: the supervisor ends everything in order
                start_new_session=True,
                preexec_fn=_bind_to_parent(self.spec.orphan_signal),
            )
        self._started_s = now_s
        self.state = ChildState.RUNNING

    def check(self, now_s: float) -> bool:
        """Notices an end and starts again what is due; True if anything changed."""
        if self.state is ChildState.RUNNING and self._exit_code() is not None:
            self._note_end(now_s)
            return True
        if self.state is ChildState.PAUSED and now_s >= self._due_s:
            self.restarts += 1
            self.start(now_s)
            return True
        return False

    def due_in_s(self, now_s: float) -> float | None:
        """Seconds until a restart; None while none is planned."""
        return max(0.0, self._due_s - now_s) if self.state is ChildState.PAUSED else None

    def ask_to_end(self) -> None:
        self._signal(signal.SIGTERM)
        if self.state is ChildState.PAUSED:
            self.state = ChildState.ENDED

    def ended(self) -> bool:
        """Whether it is gone, after `ask_to_end`; clears what it left behind."""
        if self.state is ChildState.RUNNING and self._exit_code() is not None:
            self._clear_group()
            self.state = ChildState.ENDED
        return self.state is not ChildState.RUNNING

    def kill(self) -> None:
        """Ends it and everything in its process group at once."""
        self._clear_group()
        if self._process is not None:
            # a process in the kernel's hands ends later, and must not hold up the others
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(_KILL_S)
        self.state = ChildState.ENDED

    def _exit_code(self) -> int | None:
        return self._process.poll() if self._process is not None else None

    def _note_end(self, now_s: float) -> None:
        self._clear_group()
        self.deaths += 1
        self.last_exit = _in_words(self._exit_code())
        if now_s - self._started_s >= _SETTLED_S:
            self._pause_s = _FIRST_PAUSE_S
        self._due_s = now_s + self._pause_s
        self._pause_s = min(_LONGEST_PAUSE_S, self._pause_s * 2)
        self.state = ChildState.PAUSED

    def _clear_group(self) -> None:
        """Kills what stayed in the process group, such as an engine whose pool was killed."""
        if self._process is not None:
            _send(os.killpg, self._process.pid, signal.SIGKILL)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            _send(os.kill, self._process.pid, number)


def _send(send: Callable[[int, int], None], target: int, number: signal.Signals) -> None:
    # macOS answers "not permitted" for a group whose members are all dead already
    with contextlib.suppress(ProcessLookupError, PermissionError):
        send(target, number)


def _in_words(code: int | None) -> str:
    if code is not None and code < 0:
        return f"killed by {signal.Signals(-code).name}"
    return f"exit status {code}"


def _bind_to_parent(number: signal.Signals) -> Callable[[], None] | None:
    """What the child runs before its program so that it dies with the supervisor (Linux)."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    parent = os.getpid()

    def bind() -> None:
        prctl(_PR_SET_PDEATHSIG, int(number), 0, 0, 0)
        if os.getppid() != parent:
            os._exit(1)

    return bind
