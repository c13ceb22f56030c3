import os
import stat
from pathlib import Path

import pytest

from noidle.errors import ConfigError
from ops import cluster_file
from ops.cluster_file import ClusterFile
from ops.data_dir import DataDir
from ops.lock import DataLock


@pytest.fixture
def data(tmp_path: Path) -> DataDir:
    found = DataDir(root=tmp_path / "data")
    found.create()
    return found


def make_cluster(pid: int) -> ClusterFile:
    return ClusterFile(url="redis://:secret@127.0.0.1:7777/0", embedded=True, pid=pid)


def test_the_file_of_a_killed_supervisor_names_no_cluster(data: DataDir):
    cluster_file.write(data, make_cluster(os.getpid()))
    assert cluster_file.read(data) is not None
    assert cluster_file.local_url(data.root) is None


def test_a_cluster_that_is_up_is_found_by_its_lock(data: DataDir):
    cluster_file.write(data, make_cluster(os.getpid()))
    lock = DataLock(data.lock)
    lock.take()
    try:
        assert cluster_file.local_url(data.root) == "redis://:secret@127.0.0.1:7777/0"
        # the former supervisor's file, and the next one has not written its own yet
        cluster_file.write(data, make_cluster(os.getpid() + 1))
        assert cluster_file.local_url(data.root) is None
    finally:
        lock.release()


def test_the_file_is_for_its_owner_alone(data: DataDir):
    cluster_file.write(data, make_cluster(1))
    assert stat.S_IMODE(data.cluster_file.stat().st_mode) == 0o600


def test_the_address_lies_in_a_file_of_its_own_while_the_cluster_is_up(data: DataDir):
    """Nothing told a program on this host where the cluster's Redis was."""
    cluster_file.write(data, make_cluster(1))
    assert data.url_file.read_text().strip() == make_cluster(1).url
    assert stat.S_IMODE(data.url_file.stat().st_mode) == 0o600
    cluster_file.remove(data)
    assert not data.url_file.exists()
    assert not data.cluster_file.exists()


def test_a_damaged_file_names_no_cluster(data: DataDir):
    data.cluster_file.write_text("{")
    assert cluster_file.read(data) is None


def test_the_settings_say_which_directory(data: DataDir, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("NOIDLE_DATA_DIR", str(data.root))
    assert cluster_file.local_url() is None
    monkeypatch.setenv("NOIDLE_DATA_DIRECTORY", "typo")
    with pytest.raises(ConfigError, match="NOIDLE_DATA_DIR"):
        cluster_file.local_url()
