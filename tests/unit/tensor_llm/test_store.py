import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor

import pytest

from noidle.errors import CheckpointError
from tensor_llm.store import ModelStore, read_json, revision_name
from tests.unit.tensor_llm.builders import make_config


@pytest.fixture
def store(tmp_path) -> ModelStore:
    return ModelStore(tmp_path)


def write(store: ModelStore, revision: str, name: str = "mini") -> None:
    with store.writing(name, revision) as folder:
        (folder / "config.json").write_text(json.dumps(make_config().to_json()))
        (folder / "checkpoint.json").write_text('{"step": 3, "bytes_per_token": 2.5}')
        (folder / "model.safetensors").write_bytes(b"12345")


def test_an_empty_folder_has_no_models(store):
    assert store.names() == []
    assert store.current("mini") is None
    assert store.revisions("mini") == []


def test_a_revision_counts_once_it_is_current(store, tmp_path):
    write(store, "step-000001-aa")
    assert store.revisions("mini") == ["step-000001-aa"]
    assert store.names() == []
    store.set_current("mini", "step-000001-aa")
    assert store.names() == ["mini"]
    assert store.current("mini") == "step-000001-aa"
    wanted = tmp_path / "models" / "mini" / "step-000001-aa"
    assert store.directory("mini") == wanted


def test_a_write_that_fails_leaves_nothing(store, tmp_path):
    def fail() -> None:
        with store.writing("mini", "r1") as folder:
            (folder / "config.json").write_text("{}")
            raise RuntimeError("disk full")

    with pytest.raises(RuntimeError, match="disk full"):
        fail()
    assert list((tmp_path / "models" / "mini").iterdir()) == []


def test_nothing_of_a_revision_shows_before_it_is_whole(store):
    with store.writing("mini", "r1") as folder:
        (folder / "config.json").write_text("{}")
        assert store.revisions("mini") == []
    assert store.revisions("mini") == ["r1"]


def test_a_revision_is_never_overwritten(store):
    write(store, "r1")
    before = (store.directory("mini", "r1") / "config.json").read_text()
    with store.writing("mini", "r1") as folder:
        (folder / "config.json").write_text("other")
    assert (store.directory("mini", "r1") / "config.json").read_text() == before


def test_revisions_come_in_the_order_of_their_steps(store):
    for step in (9, 120, 1_000_000, 12):
        write(store, revision_name(step, "ab12cd34"))
    steps = [int(name.split("-")[1]) for name in store.revisions("mini")]
    assert steps == [9, 12, 120, 1_000_000]


def test_pruning_keeps_the_last_ones_the_current_one_and_those_in_use(store):
    for step in range(6):
        write(store, revision_name(step, "aa"))
    store.set_current("mini", revision_name(0, "aa"))
    removed = store.prune("mini", keep=3, in_use=[revision_name(1, "aa")])
    assert removed == [revision_name(2, "aa")]
    assert len(store.revisions("mini")) == 5


def test_facts_are_read_from_the_small_files(store):
    write(store, "r1")
    store.set_current("mini", "r1")
    info = store.info("mini")
    config = make_config()
    assert (info.name, info.revision, info.storage) == ("mini", "r1", store.storage_id())
    assert (info.context, info.parameters) == (config.context, config.parameters)
    assert (info.weight_bytes, info.bytes_per_token) == (5, 2.5)
    assert info.kv_bytes_per_token == config.kv_bytes_per_token(4)


def test_what_there_is_not_is_refused_with_what_there_is(store):
    write(store, "r1")
    store.set_current("mini", "r1")
    with pytest.raises(CheckpointError, match="no model of this name; there are: mini"):
        store.directory("other")
    with pytest.raises(CheckpointError, match="no such revision; there are: r1"):
        store.directory("mini", "r2")


@pytest.mark.parametrize("name", ["..", "a/b", "", "/etc", ".hidden", "x" * 65, "a\n"])
def test_names_cannot_leave_the_folder(store, name):
    for use in (store.directory, store.current, lambda one: store.writing(one, "r").__enter__()):
        with pytest.raises(CheckpointError, match="cannot name a folder"):
            use(name)
    write(store, "r1")
    if name:
        with pytest.raises(CheckpointError, match="cannot name a folder"):
            store.directory("mini", name)


def test_a_mangled_current_file_counts_as_none(store, tmp_path):
    write(store, "r1")
    (tmp_path / "models" / "mini" / "current").write_text("../../etc")
    assert store.current("mini") is None


@pytest.mark.parametrize(
    ("content", "fault"),
    [("", "is not JSON"), ("[1]", "one JSON object"), ("[" * 100_000, "is not JSON")],
)
def test_a_malformed_json_file_is_refused_by_name(tmp_path, content, fault):
    path = tmp_path / "x.json"
    path.write_text(content)
    with pytest.raises(CheckpointError, match=rf"x\.json: .*{fault}"):
        read_json(path)


def test_an_absurdly_large_json_file_is_not_read(tmp_path):
    path = tmp_path / "x.json"
    path.touch()
    os.truncate(path, 1 << 40)
    with pytest.raises(CheckpointError, match="allowed are 1048576 bytes"):
        read_json(path)


@pytest.mark.parametrize("value", ['"x"', "0", "-1", "true", "1e9", "NaN"])
def test_a_wrong_number_in_checkpoint_json_is_named(store, value):
    write(store, "r1")
    path = store.directory("mini", "r1") / "checkpoint.json"
    path.write_text(f'{{"step": 3, "bytes_per_token": {value}}}')
    with pytest.raises(CheckpointError, match=r"checkpoint\.json: (bytes_per_token|is not JSON)"):
        store.info("mini", "r1")


def test_a_storage_has_one_identity_however_many_ask_first(tmp_path):
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: ModelStore(tmp_path).storage_id(), range(16)))
    assert len(found) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["storage-id"]


def test_facts_of_models_need_no_torch():
    code = "import sys, tensor_llm.store; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
