"""Names and paths of models."""

import pytest

from noidle.errors import ConfigError
from ops.run.whereabouts import find_model
from tensor_llm.store import ModelStore


@pytest.fixture
def data(tmp_path):
    store = ModelStore(tmp_path / "data")
    with store.writing("mini", "step-000000-aaaaaaaa") as folder:
        (folder / "config.json").write_text("{}")
    store.set_current("mini", "step-000000-aaaaaaaa")
    return tmp_path / "data"


def test_a_name_is_a_stored_model(data):
    found = find_model("mini", data)
    assert (found.name, found.revision) == ("mini", "step-000000-aaaaaaaa")
    assert (found.folder / "config.json").exists()


def test_a_stored_name_goes_before_a_folder_that_is_called_so(data, tmp_path, monkeypatch):
    (tmp_path / "mini").mkdir()
    monkeypatch.chdir(tmp_path)
    assert find_model("mini", data).revision is not None
    found = find_model("./mini", data)
    assert (found.folder.resolve(), found.name, found.revision) == (tmp_path / "mini", "mini", None)


@pytest.mark.parametrize("given", ["~/models/a b", "models/a b", "./models/../models/a b", "."])
def test_any_path_of_the_persons_own_will_do(data, tmp_path, monkeypatch, given):
    folder = tmp_path / "models" / "a b"
    folder.mkdir(parents=True)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.chdir(folder if given == "." else tmp_path)
    found = find_model(given, data)
    assert (found.folder.resolve(), found.name) == (folder, "a b")


def test_a_link_may_lead_anywhere(data, tmp_path):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert find_model(str(tmp_path / "link"), data).name == "real"


def test_what_is_neither_is_refused_with_what_there_is(data, tmp_path):
    with pytest.raises(ConfigError, match=r"^--model = 'nope': allowed is a folder, .*: mini$"):
        find_model("nope", data)
    with pytest.raises(ConfigError, match="noidle model add PATH"):
        find_model("nope", tmp_path / "empty")
    (tmp_path / "file.gguf").write_text("")
    with pytest.raises(ConfigError, match=r"^which = .*allowed is the folder that holds"):
        find_model(str(tmp_path / "file.gguf"), data, option="which")
    with pytest.raises(ConfigError):
        find_model("x" * 5000, data)
    with pytest.raises(ConfigError):
        find_model("a\0b", data)
