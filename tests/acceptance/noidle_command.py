"""`noidle` as a person runs it, in a process of its own, on a data directory of its own."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.integration.ops.commands import environment

PATIENCE_S = 120
COMMAND = [sys.executable, "-m", "noidle.cli"]


def noidle(
    data: Path,
    *arguments: object,
    text: str | None = None,
    cwd: Path | None = None,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """`text` is piped in; without it standard input is empty."""
    return subprocess.run(
        [*COMMAND, *map(str, arguments)],
        env={**environment(data, **settings), "OMP_NUM_THREADS": "1"},
        input=text or "",
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=PATIENCE_S,
        check=False,
    )


def noidle_json(data: Path, *arguments: object, **options: Any) -> Any:
    done = noidle(data, *arguments, "--json", **options)
    assert done.returncode == 0, done.stderr
    assert _said(done.stderr) == []
    return json.loads(done.stdout)


def refusal(done: subprocess.CompletedProcess[str], status: int = 2) -> str:
    """The one line in which a command says what is wrong."""
    assert done.returncode == status, (done.stdout, done.stderr)
    [line] = _said(done.stderr)
    assert line.startswith("noidle: ")
    assert done.stdout == ""
    return line


def _said(errors: str) -> list[str]:
    """Without what the first command on a machine has to say of its kernels."""
    kernels = ("building the CPU's kernels", "no C++ kernels")
    return [line for line in errors.splitlines() if not line.startswith(kernels)]
