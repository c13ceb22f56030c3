"""`noidle` as a person runs it, in a process of its own, on a data directory of its own.

The process is forked from one that has read torch, which alone takes longer than most commands."""

import json
import multiprocessing
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from noidle.cli import main
from tests.integration.ops.commands import environment

PATIENCE_S = 120
COMMAND = [sys.executable, "-m", "noidle.cli"]
"""For tests that speak with it while it runs; it starts as it does on a machine."""
FORKS = multiprocessing.get_context("forkserver")
FORKS.set_forkserver_preload(["torch", "ops.cli", "ops.run.opening", "tensor_llm.adding"])


def noidle(
    data: Path,
    *arguments: object,
    text: str | None = None,
    cwd: Path | None = None,
    **settings: str,
) -> subprocess.CompletedProcess[str]:
    """`text` is piped in; without it standard input is empty."""
    words = [*map(str, arguments)]
    variables = {**environment(data, **settings), "OMP_NUM_THREADS": "1"}
    with tempfile.TemporaryDirectory() as folder:
        files = [Path(folder) / name for name in ("in", "out", "err")]
        for file in files:
            file.touch()
        files[0].write_text(text or "", encoding="utf-8")
        process = FORKS.Process(target=_be_noidle, args=(words, variables, cwd, files))
        process.start()
        process.join(PATIENCE_S)
        if process.exitcode is None:
            process.kill()
            process.join()
            raise subprocess.TimeoutExpired(words, PATIENCE_S)
        out, err = (file.read_text(encoding="utf-8") for file in files[1:])
        return subprocess.CompletedProcess(words, process.exitcode, out, err)


def _be_noidle(
    words: Sequence[str], variables: Mapping[str, str], cwd: Path | None, files: Sequence[Path]
) -> None:
    """In the new process: with these files for its standard streams."""
    for number, file in enumerate(files):
        os.dup2(os.open(file, os.O_RDWR), number)
    sys.stdin, sys.stdout, sys.stderr = (
        open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115  as long as it lives
        for number, mode in enumerate("rww")
    )
    os.environ.clear()
    os.environ.update(variables)
    if cwd is not None:
        os.chdir(cwd)
    sys.exit(main(words))


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
