"""Worker processes of the tests: real ones, with the echo engine."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 30.0


class WorkerProcess:
    """A pool or a router in a process of its own, its log in `folder`."""

    def __init__(
        self,
        folder: Path,
        url: str,
        *arguments: str,
        module: str = "tests.integration.workers.launch",
        **settings: str,
    ) -> None:
        words = [word for word in arguments if "/" not in word]
        self.log = folder / f"{'-'.join(words)}.log"
        variables = {
            **os.environ,
            "PYTHONPATH": str(ROOT),
            "NOIDLE_URL": url,
            "NOIDLE_DATA_DIR": str(folder / "data"),
            "NOIDLE_HOST": "here",
            **settings,
        }
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", module, *arguments],
                cwd=ROOT,
                env=variables,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        self.pid = self._process.pid

    def signal(self, number: signal.Signals) -> None:
        if self._process.poll() is None:
            os.kill(self.pid, number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        return self._process.wait(timeout_s)

    def running(self) -> bool:
        return self._process.poll() is None

    def end(self) -> None:
        """However the test went, nothing stays."""
        self.signal(signal.SIGKILL)
        self._process.wait(PATIENCE_S)


def until(condition: Callable[[], object], what: str, timeout_s: float = PATIENCE_S) -> None:
    """Waits for a condition; never for a time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"not within {timeout_s:g} s: {what}")
        time.sleep(0.01)
