"""What models are called."""

from pathlib import Path

import pytest

from noidle.errors import ConfigError
from ops.models.naming import model_name


@pytest.mark.parametrize(
    ("folder", "name"),
    [
        ("models/Llama-3.2-1B-Instruct", "Llama-3.2-1B-Instruct"),
        ("hub/models--Qwen--Qwen3-0.6B/snapshots/c1899de2", "Qwen3-0.6B"),
        ("hub/models--a--b--c/snapshots/1", "b--c"),
        ("snapshots/tiny", "tiny"),
    ],
)
def test_a_folder_gives_its_name(tmp_path: Path, folder: str, name: str):
    assert model_name(None, tmp_path / folder) == name


def test_what_is_given_goes_before(tmp_path: Path):
    assert model_name("mine", tmp_path / "theirs") == "mine"


@pytest.mark.parametrize("name", ["", "a b", "../x", "-a", "x" * 65, "ä", ".hidden"])
def test_what_cannot_name_a_model_is_refused(tmp_path: Path, name: str):
    with pytest.raises(ConfigError, match=r"--name = .*allowed is 1 to 64"):
        model_name(name, tmp_path)


def test_a_folder_with_such_a_name_asks_for_another(tmp_path: Path):
    with pytest.raises(ConfigError, match="choose one with --name"):
        model_name(None, tmp_path / "my model")
