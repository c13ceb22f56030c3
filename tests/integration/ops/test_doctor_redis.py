"""The doctor against real servers that are set up wrongly, one way each."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import redis

from noidle.errors import ConfigError
from ops.doctor.check import Check, Outcome
from ops.doctor.redis_server import check_redis, require_redis
from tests.integration.ops.commands import run, run_json
from tests.valkey_process import ValkeyProcess, free_port


@contextmanager
def server(folder: Path, *options: str) -> Iterator[ValkeyProcess]:
    process = ValkeyProcess(folder, *options)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def by_name(checks: list[Check]) -> dict[str, Check]:
    return {check.name: check for check in checks}


def test_a_server_set_up_well_has_nothing_to_put_right(tmp_path: Path):
    with server(tmp_path, "--maxmemory", "100mb") as found:
        checks = check_redis(found.url)
    assert {check.outcome for check in checks} == {Outcome.OK}
    assert {"reachable", "version", "eviction", "persistence", "cluster mode", "clock"} <= set(
        by_name(checks)
    )


def test_eviction_with_a_memory_limit_fails_with_the_remedy(tmp_path: Path):
    options = ("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
    with server(tmp_path, *options) as found:
        check = by_name(check_redis(found.url))["eviction"]
        with pytest.raises(ConfigError, match=r"allkeys-lru.*noeviction"):
            require_redis(found.url)
    assert check.outcome is Outcome.FAIL
    assert "allkeys-lru" in check.found
    assert check.remedy
    assert "noeviction" in check.remedy


def test_eviction_without_a_limit_is_a_warning(tmp_path: Path):
    with server(tmp_path, "--maxmemory-policy", "allkeys-lru") as found:
        assert by_name(check_redis(found.url))["eviction"].outcome is Outcome.WARN
        require_redis(found.url)


def test_no_append_only_file_is_a_warning(tmp_path: Path):
    with server(tmp_path, "--appendonly", "no") as found:
        check = by_name(check_redis(found.url))["persistence"]
    assert check.outcome is Outcome.WARN
    assert check.remedy
    assert "appendonly yes" in check.remedy


def test_cluster_mode_is_refused(tmp_path: Path):
    # the usual one is 10,000 higher than the server's, which may be no port at all
    bus = str(free_port())
    with server(tmp_path, "--cluster-enabled", "yes", "--cluster-port", bus) as found:
        assert by_name(check_redis(found.url))["cluster mode"].outcome is Outcome.FAIL
        with pytest.raises(ConfigError, match="cluster mode"):
            require_redis(found.url)


def test_a_replica_names_its_primary(tmp_path: Path, valkey_server: ValkeyProcess):
    options = ("--replicaof", "127.0.0.1", str(valkey_server.port))
    with server(tmp_path, *options) as found:
        check = by_name(check_redis(found.url))["role"]
    assert check.outcome is Outcome.FAIL
    assert check.remedy
    assert str(valkey_server.port) in check.remedy


def test_a_full_server_fails(tmp_path: Path):
    with server(tmp_path, "--maxmemory", "10mb") as found:
        with redis.Redis.from_url(found.url) as client:
            # well above the limit of four fifths: buffers that come and go count too
            while client.info("memory")["used_memory"] < 9_300_000:
                client.rpush("ballast", b"x" * 50_000)
        assert by_name(check_redis(found.url))["memory"].outcome is Outcome.FAIL


def test_few_connections_are_a_warning(tmp_path: Path):
    with server(tmp_path, "--maxclients", "50") as found:
        assert by_name(check_redis(found.url))["connections"].outcome is Outcome.WARN


def test_a_clock_that_differs_is_a_warning(valkey_url: str):
    check = by_name(check_redis(valkey_url, clock=lambda: 1_000_000.0))["clock"]
    assert check.outcome is Outcome.WARN
    assert "ahead of this host" in check.found


def test_a_wrong_password_says_so_and_is_not_shown(tmp_path: Path):
    with server(tmp_path) as found:
        with redis.Redis.from_url(found.url) as client:
            client.config_set("requirepass", "right")
        url = f"redis://:wrong-secret@127.0.0.1:{found.port}/0"
        [check] = check_redis(url)
    assert check.outcome is Outcome.FAIL
    assert "password" in check.found
    assert "wrong-secret" not in check.model_dump_json()


def test_a_server_that_is_away_says_what_to_do():
    [check] = check_redis(f"redis://127.0.0.1:{free_port()}/0")
    assert check.outcome is Outcome.FAIL
    assert check.remedy
    assert "noidle up" in check.remedy


def test_the_command_exits_1_on_a_failure_and_0_without(tmp_path: Path, valkey_url: str):
    away = f"redis://127.0.0.1:{free_port()}/0"
    assert run(tmp_path, "doctor", url=away).returncode == 1
    assert run(tmp_path, "doctor", url=valkey_url).returncode == 0
    checks = run_json(tmp_path, "doctor", url=valkey_url)
    assert {check["area"] for check in checks} == {"machine", "engine", "redis"}
    assert all(check["remedy"] for check in checks if check["outcome"] != "ok")
    engines = {check["name"]: check["found"] for check in checks if check["area"] == "engine"}
    assert set(engines) == {"cpu", "hybrid", "cuda", "gpu"}


def test_a_worker_does_not_start_on_a_server_that_drops_jobs(tmp_path: Path):
    options = ("--maxmemory-policy", "allkeys-lru", "--maxmemory", "100mb")
    with server(tmp_path, *options) as found:
        done = run(tmp_path / "data", "worker", "cpu", "--program", "echo", url=found.url)
    assert done.returncode == 2
    assert "eviction" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
