"""What a container's health check says, over a real Valkey."""

import subprocess
import sys
from pathlib import Path

import pytest

from compose import health
from noidle.connection import connect
from noidle.jobs import EngineName
from noidle.snapshot import PoolSnapshot, PoolState
from routing.redis_board import RedisBoard
from tests.valkey_process import free_port

ROOT = Path(__file__).parents[3]


def check(role: str, url: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "compose/health.py", role],
        cwd=ROOT,
        env={"PYTHONPATH": str(ROOT), "NOIDLE_URL": url, "NOIDLE_HOST": "compose"},
        capture_output=True,
        text=True,
        check=False,
    )


def publish(board: RedisBoard, state: PoolState, why: str | None = None) -> None:
    board.publish(
        PoolSnapshot(
            pool="cpu@compose",
            engine=EngineName.CPU,
            host="compose",
            device="cpu",
            slots=1,
            state=state,
            why=why,
        )
    )


def test_a_pool_is_well_while_its_snapshot_is_fresh_and_its_engine_starts(valkey_url: str):
    board = RedisBoard(connect(valkey_url), snapshot_s=600)
    silent = check("cpu", valkey_url)
    assert silent.returncode == 1
    assert "noidle:pool:cpu@compose:snapshot is not there" in silent.stderr
    publish(board, PoolState.READY)
    assert check("cpu", valkey_url).returncode == 0
    publish(board, PoolState.FAILED, "no such device")
    assert check("cpu", valkey_url).stderr == "cpu: no such device\n"


def test_a_router_is_well_while_one_decides(valkey_url: str):
    assert check("router", valkey_url).returncode == 1
    RedisBoard(connect(valkey_url), role_s=600).take_pump("router@compose")
    assert check("router", valkey_url).returncode == 0


def test_a_redis_that_does_not_answer_is_ill_in_one_line():
    done = check("cpu", f"redis://:secret@127.0.0.1:{free_port()}/0")
    assert done.returncode == 1
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stderr


def test_a_flower_that_does_not_answer_is_ill_in_one_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    # the usual port may have a Flower of somebody else
    monkeypatch.setattr(health, "FLOWER", f"http://127.0.0.1:{free_port()}/healthcheck")
    assert health.main(["flower"]) == 1
    assert capsys.readouterr().err.count("\n") == 1
