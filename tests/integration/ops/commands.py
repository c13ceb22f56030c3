"""Runs noidle's cluster verbs as a user would: real processes, a data directory of their own."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
PATIENCE_S = 60.0


def environment(data: Path, **settings: str) -> dict[str, str]:
    """This process's, without a cluster's settings, and `settings` as NOIDLE_ variables."""
    kept = {name: value for name, value in os.environ.items() if "NOIDLE_" not in name}
    chosen = {f"NOIDLE_{name.upper()}": value for name, value in settings.items()}
    return {**kept, "PYTHONPATH": str(ROOT), "NOIDLE_DATA_DIR": str(data), **chosen}


def start(
    data: Path, *arguments: str, url: str | None = None, echo_step_s: float = 0.002, **settings: str
) -> subprocess.Popen[str]:
    """A command that goes on; its output is read through `stdout`.

    Args:
        echo_step_s: how long an echo engine takes for a token.
    """
    settings = {"host": "box", **settings, **({} if url is None else {"url": url})}
    return subprocess.Popen(
        [sys.executable, "-m", "ops", *arguments],
        env={**environment(data, **settings), "ECHO_STEP_S": str(echo_step_s)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run(
    data: Path, *arguments: str, url: str | None = None, **settings: str
) -> subprocess.CompletedProcess[str]:
    """A command that ends."""
    settings = {"host": "box", **settings, **({} if url is None else {"url": url})}
    return subprocess.run(
        [sys.executable, "-m", "ops", *arguments],
        env=environment(data, **settings),
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


def run_json(data: Path, *arguments: str, url: str | None = None) -> Any:
    done = run(data, *arguments, "--json", url=url)
    assert done.stdout, done.stderr
    return json.loads(done.stdout)


def wait_for(condition: Callable[[], Any], what: str, patience_s: float = PATIENCE_S) -> Any:
    """The condition's first value that is true."""
    end = time.monotonic() + patience_s
    while time.monotonic() < end:
        if found := condition():
            return found
        time.sleep(0.05)
    raise TimeoutError(f"{what} did not come true within {patience_s:.0f} s")


def stop(process: subprocess.Popen[str]) -> None:
    """For a test's end, whatever state it left."""
    if process.poll() is None:
        process.terminate()
    try:
        process.communicate(timeout=30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
