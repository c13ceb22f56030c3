"""`noidle up` on a bare data directory: one cluster that several tests look at and hurt."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from ops.valkey import port_is_free
from tests.integration.ops.commands import run, run_json, wait_for
from tests.integration.ops.local import ECHO, Local, marked
from tests.valkey_process import free_port


@pytest.fixture(scope="module")
def flower_port() -> int:
    return free_port()


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory, flower_port: int) -> Iterator[Local]:
    found = Local(tmp_path_factory.mktemp("up"))
    try:
        found.up(
            *("--engines", "cpu,cuda", "--stand-in", "--slots", "cpu=2", "--slots", "3"),
            *("--flower-port", str(flower_port)),
        )
        yield found
    finally:
        found.close()


def test_a_job_is_answered(local: Local):
    result = local.answer()
    assert result.state == "done"
    assert result.text


def test_status_shows_each_pool_and_says_who_stands_in(local: Local):
    found = local.status()
    pools = {pool["pool"]: pool for pool in found["pools"]}
    assert set(pools) == {"cpu@box", "cuda@box"}
    assert (pools["cpu@box"]["stand_in"], pools["cuda@box"]["stand_in"]) == (False, True)
    assert (pools["cpu@box"]["slots"], pools["cuda@box"]["slots"]) == (2, 3)
    assert found["router"] == "router@box"
    detail = wait_for(lambda: local.status()["details"].get("cpu@box"), "details of a pool")
    assert {process["name"] for process in detail["processes"]} == {"worker", "engine"}
    text = run(local.root, "status").stdout
    assert "cuda@box" in text
    assert "stand-in" in text


def test_jobs_lists_the_newest(local: Local):
    result = local.answer("which is the newest")
    jobs = run_json(local.root, "jobs", "--limit", "1")
    assert [job["id"] for job in jobs] == [result.id]
    assert result.id in run(local.root, "jobs").stdout


def test_flower_shows_one_row_a_job_with_the_pool_that_ran_it(local: Local):
    results = [local.answer(f"row {number}") for number in range(5)]

    def rows() -> dict[str, str]:
        shown = local.ask_flower("/api/tasks")
        return {uuid: row["worker"] for uuid, row in shown.items() if row["state"] == "SUCCESS"}

    wanted = {result.id: result.pool for result in results}
    wait_for(lambda: wanted.items() <= rows().items(), "the rows of the jobs")
    # a row a job: none for the routing, none twice
    shown = local.ask_flower("/api/tasks")
    assert {row["name"] for row in shown.values()} == {"noidle.generate"}
    assert len(shown) == len(run_json(local.root, "jobs", "--limit", "1000"))


def test_a_second_one_on_the_same_directory_is_refused(local: Local):
    done = run(local.root, "up", *ECHO)
    assert done.returncode == 1
    assert str(local.file.pid) in done.stderr
    assert "noidle down" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    again = run(local.root, "up", "--detach", *ECHO)
    assert again.returncode == 1
    assert local.answer().state == "done"


def test_no_password_is_on_any_command_line_or_in_any_log(local: Local):
    secrets = [path.read_text().strip() for path in local.data.secrets.iterdir()]
    # two passwords, and the address
    assert len(secrets) == 3
    assert len(marked(local.root)) >= 6
    shown = [" ".join(psutil.Process(pid).cmdline()) for pid in marked(local.root)]
    shown += [path.read_text(errors="replace") for path in local.data.logs.iterdir()]
    assert not [text for text in shown for secret in secrets if secret in text]


def test_logs_name_their_process(local: Local):
    text = run(local.root, "logs", "--lines", "3").stdout
    assert {"valkey", "router", "cpu", "cuda", "flower"} <= {
        line.split(maxsplit=1)[0] for line in text.splitlines()
    }
    unknown = run(local.root, "logs", "nobody")
    assert unknown.returncode == 1
    assert "router" in unknown.stderr


@pytest.mark.parametrize("name", ["router", "cpu", "flower", "valkey"])
def test_what_is_killed_comes_back_and_jobs_go_on(local: Local, name: str):
    before = local.answer("kept over the death").id
    former = local.kill(name)
    local.restarted(name, former)
    assert local.answer(f"after {name}").state == "done"
    assert before in [job["id"] for job in run_json(local.root, "jobs")]


def test_ctrl_c_leaves_no_process_and_no_port(local: Local, flower_port: int):
    """Last: it ends the cluster of this file."""
    port = int(local.file.url.rpartition(":")[2].partition("/")[0])
    assert not port_is_free(port)
    local.send(signal.SIGINT)
    status, output = local.wait()
    assert status == 0, output
    assert marked(local.root) == []
    assert port_is_free(port)
    assert port_is_free(flower_port)
    assert not local.data.cluster_file.exists()


def test_nothing_is_up_then(local: Local, tmp_path: Path):
    done = run(tmp_path, "status")
    assert done.returncode == 2
    assert "noidle up" in done.stderr
