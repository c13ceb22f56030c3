import stat
from pathlib import Path

import pytest

from noidle.errors import ConfigError
from ops.data_dir import DataDir, write_private


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_folders_are_closed_to_other_users(tmp_path: Path):
    data = DataDir(root=tmp_path / "data")
    data.create()
    for folder in (data.root, data.secrets, data.valkey, data.logs):
        assert mode(folder) == 0o700


def test_a_secret_is_drawn_once_and_private(tmp_path: Path):
    data = DataDir(root=tmp_path / "data")
    data.create()
    first = data.secret("valkey")
    assert len(first) >= 32
    assert data.secret("valkey") == first
    assert data.secret("flower") != first
    assert mode(data.secrets / "valkey") == 0o600


def test_replacing_a_private_file_leaves_nothing_beside_it(tmp_path: Path):
    write_private(tmp_path / "file", "one")
    write_private(tmp_path / "file", "two")
    assert (tmp_path / "file").read_text() == "two"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_a_directory_that_cannot_be_made_names_itself_and_the_way_out(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"file/data cannot be used.*--data") as caught:
        DataDir(root=tmp_path / "file" / "data").create()
    assert caught.value.variable == "NOIDLE_DATA_DIR"
