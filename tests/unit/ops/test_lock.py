import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ops.lock import AlreadyUp, DataLock, holder

HOLD = """
import sys, pathlib
from ops.lock import DataLock
lock = DataLock(pathlib.Path(sys.argv[1]))
lock.take()
print("held", flush=True)
input()
"""


def hold_elsewhere(path: Path) -> subprocess.Popen[bytes]:
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": os.getcwd()},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == b"held\n"
    return process


def test_a_second_holder_is_refused_and_told_the_first(tmp_path: Path):
    other = hold_elsewhere(tmp_path / "lock")
    with pytest.raises(AlreadyUp, match=rf"process {other.pid}.*noidle down") as caught:
        DataLock(tmp_path / "lock").take()
    assert caught.value.pid == other.pid
    assert holder(tmp_path / "lock") == other.pid
    other.communicate(b"\n")


def test_a_lock_whose_holder_was_killed_is_free(tmp_path: Path):
    other = hold_elsewhere(tmp_path / "lock")
    other.send_signal(signal.SIGKILL)
    other.communicate()
    assert (tmp_path / "lock").read_text() == str(other.pid)
    assert holder(tmp_path / "lock") is None
    lock = DataLock(tmp_path / "lock")
    lock.take()
    assert (tmp_path / "lock").read_text() == str(os.getpid())
    lock.release()


def test_nobody_holds_a_lock_that_was_never_taken(tmp_path: Path):
    assert holder(tmp_path / "lock") is None
