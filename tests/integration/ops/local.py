"""A cluster that `noidle up` runs for a test, with the echo program."""

import base64
import json
import os
import signal
import subprocess
import urllib.request
from pathlib import Path
from typing import Any

import psutil

from noidle import Client
from noidle.results import JobResult
from ops import cluster_file
from ops.child import MARK
from ops.cluster_file import ClusterFile
from ops.data_dir import DataDir
from tests.integration.ops.commands import run_json, start, stop, wait_for
from tests.valkey_process import free_port

ECHO = ("--program", "echo")


class Local:
    """One data directory; `up` and `end` may follow each other."""

    def __init__(self, root: Path) -> None:
        self.data = DataDir(root=root)
        self._process: subprocess.Popen[str] | None = None

    @property
    def root(self) -> Path:
        return self.data.root

    @property
    def file(self) -> ClusterFile:
        found = cluster_file.running(self.data)
        assert found is not None, "no cluster is up"
        return found

    def up(self, *options: str, url: str | None = None, echo_step_s: float = 0.002) -> None:
        """Returns once it says that it is ready."""
        if not {"--no-flower", "--flower-port"} & {*options}:
            # two that start at once would both find Flower's own port free
            options = (*options, "--flower-port", str(free_port()))
        self._process = start(self.root, "up", *ECHO, *options, url=url, echo_step_s=echo_step_s)
        wait_for(self._ready, "a cluster that is ready")

    def _ready(self) -> bool:
        assert self._process is not None
        if self._process.poll() is not None:
            raise AssertionError(self._process.communicate()[0])
        found = cluster_file.running(self.data)
        return found is not None and found.ready

    def send(self, number: signal.Signals) -> None:
        assert self._process is not None
        os.kill(self._process.pid, number)

    def wait(self) -> tuple[int, str]:
        """Exit status, and all it wrote."""
        assert self._process is not None
        output, _ = self._process.communicate(timeout=60)
        return self._process.returncode, output

    def end(self) -> tuple[int, str]:
        self.send(signal.SIGTERM)
        return self.wait()

    def close(self) -> None:
        if self._process is not None:
            stop(self._process)

    def kill(self, name: str) -> int:
        """Kills a process of the cluster and returns its number."""
        pid = self.file.pids[name]
        os.kill(pid, signal.SIGKILL)
        return pid

    def restarted(self, name: str, former: int) -> None:
        wait_for(lambda: self.file.pids.get(name) not in (None, former), f"a new {name}")

    def answer(self, prompt: str = "to be or not to be", **fields: Any) -> JobResult:
        with Client(self.file.url) as client:
            fields = {"model": "echo", "prompt": prompt, "max_tokens": 8, **fields}
            return client.submit({"kind": "generate", **fields}).result(timeout_s=60)

    def ask_flower(self, path: str, method: str = "GET") -> Any:
        """What Flower's API answers, with the password."""
        flower = self.file.flower
        assert flower is not None
        user = base64.b64encode(f"{flower.user}:{flower.password}".encode()).decode()
        request = urllib.request.Request(
            flower.url + path, headers={"Authorization": f"Basic {user}"}, method=method
        )
        with urllib.request.urlopen(request, timeout=10) as answer:
            return json.load(answer)

    def status(self) -> Any:
        return run_json(self.root, "status")


def marked(root: Path) -> list[int]:
    """Everything that runs under a supervisor of this data directory."""
    return [process.pid for process in psutil.process_iter() if _mark(process) == str(root)]


def _mark(process: psutil.Process) -> str | None:
    try:
        return process.environ().get(MARK)
    except (psutil.Error, OSError):
        return None
