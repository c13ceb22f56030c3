"""`noidle up` after an end, after a death, in the background, and where it must refuse."""

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis

from noidle import Client
from tests.integration.ops.commands import run, run_json, wait_for
from tests.integration.ops.local import ECHO, Local, marked
from tests.valkey_process import ValkeyProcess

SMALL = ("--engines", "cpu", "--no-flower")


@pytest.fixture
def local(tmp_path: Path) -> Iterator[Local]:
    found = Local(tmp_path)
    yield found
    found.close()
    run(tmp_path, "down")


def test_results_and_the_address_survive_an_end_and_a_start(local: Local):
    local.up(*SMALL)
    url, first = local.file.url, local.answer("remember me")
    assert local.end()[0] == 0
    local.up(*SMALL)
    assert local.file.url == url
    with Client(url) as client:
        assert client.job(first.id).result(timeout_s=10).text == first.text


def test_after_the_supervisor_was_killed_nothing_lives_and_the_next_start_works(local: Local):
    local.up(*SMALL)
    url = local.file.url
    first = local.answer("written before the death")
    local.send(signal.SIGKILL)
    local.wait()
    wait_for(lambda: not marked(local.root), "the end of the processes")
    assert run_json(local.root, "down") == {"ended": None, "cleared": []}
    local.up(*SMALL)
    assert local.file.url == url
    with Client(url) as client:
        assert client.job(first.id).result(timeout_s=10).text == first.text


def test_the_background_is_up_when_the_command_returns_and_down_ends_it(local: Local):
    done = run(local.root, "up", "--detach", "--json", *ECHO, *SMALL)
    assert done.returncode == 0, done.stderr
    assert local.file.ready
    assert local.file.url.partition("@")[0].removeprefix("redis://:") not in done.stdout
    assert local.answer().state == "done"
    assert run_json(local.root, "down")["ended"] is not None
    assert marked(local.root) == []
    assert "no cluster is up" in run(local.root, "down").stdout


def test_a_redis_elsewhere_is_used_and_left_running(local: Local, valkey_url: str):
    local.up(*SMALL, "--redis", valkey_url)
    assert not local.file.embedded
    assert "valkey" not in local.file.pids
    assert local.answer().pool == "cpu@box"
    assert local.end()[0] == 0
    with redis.Redis.from_url(valkey_url) as client:
        assert client.ping()
        # the pool left in order
        assert client.zcard("noidle:pools") == 0


def test_a_redis_that_would_lose_jobs_is_refused(local: Local, tmp_path_factory):
    options = ("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
    server = ValkeyProcess(tmp_path_factory.mktemp("bad"), *options)
    server.start()
    try:
        done = run(local.root, "up", *ECHO, *SMALL, "--redis", server.url)
    finally:
        server.stop()
    assert done.returncode == 2
    assert "noeviction" in done.stderr
    assert marked(local.root) == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--engines", "cpu,cuda"), "--stand-in"),
        (("--engines", "tpu"), "cpu, hybrid, cuda, gpu"),
        (("--slots", "none"), "a whole number"),
        (("--program", "nothing.toml"), "nothing.toml"),
    ],
)
def test_what_cannot_be_is_one_line_and_starts_nothing(local: Local, options, words: str):
    done = run(local.root, "up", "--no-flower", *options)
    assert done.returncode == 2
    assert words in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert marked(local.root) == []


def test_an_unknown_variable_stops_the_start(tmp_path: Path):
    done = run(tmp_path, "up", slot="3")
    assert done.returncode == 2
    assert "NOIDLE_SLOTS" in done.stderr
