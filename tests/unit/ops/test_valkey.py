import socket
import stat
from pathlib import Path

import pytest

from noidle.errors import ConfigError
from ops.data_dir import DataDir
from ops.valkey import find_binary, free_port, prepare


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    found = DataDir(root=tmp_path / "with space")
    found.create()
    return found


def test_the_password_stands_in_a_private_file_and_not_on_the_command_line(data: DataDir):
    server = prepare(data, None)
    assert server.password in server.config.read_text()
    assert server.password not in " ".join(server.command)
    assert stat.S_IMODE(server.config.stat().st_mode) == 0o600


def test_nothing_is_dropped_and_everything_is_written(data: DataDir):
    lines = prepare(data, None).config.read_text().splitlines()
    assert "bind 127.0.0.1" in lines
    assert "appendonly yes" in lines
    assert "appendfsync everysec" in lines
    assert "maxmemory-policy noeviction" in lines
    assert f'dir "{data.valkey}"' in lines


def test_the_port_of_the_former_run_comes_back(data: DataDir):
    assert prepare(data, None).port == prepare(data, None).port


def test_a_port_that_somebody_took_meanwhile_is_replaced(data: DataDir):
    former = prepare(data, None).port
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", former))
        taken.listen()
        assert prepare(data, None).port != former


def test_a_wanted_port_that_is_taken_is_an_error(data: DataDir):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(ConfigError, match=f"--port = {port}"):
            prepare(data, port)


def test_a_wanted_port_is_used(data: DataDir):
    port = free_port()
    assert prepare(data, port).url.endswith(f":{port}/0")


def test_the_packaged_server_is_found():
    assert find_binary().name in ("valkey-server", "redis-server")
