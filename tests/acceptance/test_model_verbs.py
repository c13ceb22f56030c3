"""`noidle model`: models as people have them come in, are looked at, and leave again; beside no
cluster and beside one."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from noidle import Client
from noidle.errors import InvalidJob
from noidle.results import JobState
from tensor_llm.adding import add_model
from tensor_llm.store import ModelStore
from tests.acceptance.noidle_command import noidle, noidle_json, refusal
from tests.integration.ops.commands import wait_for
from tests.integration.ops.local import Local

TENSOR = ("--engines", "cpu", "--program", "tensor", "--slots", "2", "--no-flower")
PROMPT = "The user's 2025 plan"


@pytest.fixture(scope="module")
def data(checkpoints: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with `tiny-llama` as it is, and `small` packed as int4."""
    data = tmp_path_factory.mktemp("store")
    done = noidle(data, "model", "add", checkpoints / "tiny-llama")
    assert done.returncode == 0, done.stderr
    for words in ("added tiny-llama (step-000000-", "llama, 175 k parameters", "working set "):
        assert words in done.stdout
    qwen = checkpoints / "tiny-qwen"
    found = noidle_json(data, "model", "add", qwen, "--name", "small", "--format", "int4")
    assert found["model"]["format"] == "int4"
    assert found["model"]["weight_bytes"] < found["read_bytes"] / 4
    assert found["memory"].keys() == {"before_bytes", "after_bytes"}
    change = found["perplexity"]["after"] / found["perplexity"]["before"] - 1
    assert found["perplexity"]["change"] == pytest.approx(change)
    assert 0 < abs(change) < 1
    assert found["cluster"] is False
    return data


def test_the_list_says_what_lies_there(data: Path):
    found = {card["name"]: card for card in noidle_json(data, "model", "list")}
    assert found.keys() == {"small", "tiny-llama"}
    llama = found["tiny-llama"]
    assert (llama["family"], llama["format"], llama["context"]) == ("llama", "bfloat16", 512)
    assert (llama["parameters"], llama["revisions"]) == (175_140, [llama["revision"]])
    stored = Path(llama["folder"])
    assert llama["disk_bytes"] == sum(file.stat().st_size for file in stored.iterdir())
    done = noidle(data, "model", "list")
    assert llama["revision"] in done.stdout
    assert "int4" in done.stdout


def test_every_byte_has_its_place(data: Path, checkpoints: Path):
    found = noidle_json(data, "model", "show", "tiny-llama", "--memory", "--kv-tokens", "100")
    [device] = found["memory"]["devices"]
    parts = {"embedding", "attention", "mlp", "norms", "head"}
    assert device["weight_bytes"].keys() == parts
    assert sum(device["weight_bytes"].values()) == 2 * found["parameters"]
    # three layers, two heads of 16, keys and values, two bytes each
    assert device["kv_bytes"] >= 100 * 3 * 2 * 16 * 2 * 2
    assert found["memory"]["host_to_device_bytes"] == 0
    done = noidle(data, "model", "show", checkpoints / "tiny-qwen", "--memory", "--dtype", "int8")
    assert done.returncode == 0, done.stderr
    for words in ("query key norm", "weights: mlp", "keys and values", "host to device"):
        assert words in done.stdout
    split = ("--device", "cuda:0", "--host-layers", "1", "--dtype", "bfloat16")
    halves = noidle_json(data, "model", "show", "tiny-llama", "--memory", *split)["memory"]
    assert [one["device"] for one in halves["devices"]] == ["cpu", "cuda:0"]
    # the residual stream of one token crosses, at least
    assert halves["host_to_device_bytes"] >= 60 * 2


def test_what_was_added_answers_as_the_folder_does(data: Path, checkpoints: Path):
    asked = ("--dtype", "float32", "--max-tokens", "12", PROMPT)
    stored = noidle_json(data, "run", "generate", "-m", "tiny-llama", *asked)
    own = noidle_json(data, "run", "generate", "-m", checkpoints / "tiny-llama", *asked)
    assert stored["tokens"] == own["tokens"]
    assert stored["revision"].startswith("step-000000-")


def test_an_export_is_the_model_as_transformers_reads_it(
    data: Path, checkpoints: Path, tmp_path: Path
):
    found = noidle_json(data, "model", "export", "tiny-llama", tmp_path / "out")
    assert "tokenizer.json" in found["files"]
    theirs = [
        AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
        for folder in (checkpoints / "tiny-llama", tmp_path / "out")
    ]
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "out")
    tokens = torch.tensor([tokenizer.encode(PROMPT)])
    with torch.no_grad():
        before, after = (model(tokens).logits for model in theirs)
    assert torch.equal(before, after)
    message = [{"role": "user", "content": "Hello"}]
    original = AutoTokenizer.from_pretrained(checkpoints / "tiny-llama")
    written = [one.apply_chat_template(message, tokenize=False) for one in (original, tokenizer)]
    assert written[0] == written[1]
    line = refusal(noidle(data, "model", "export", "tiny-llama", tmp_path / "out"))
    assert "not empty" in line


def test_an_export_of_a_packed_model_can_be_taken_in_again(data: Path, tmp_path: Path):
    noidle_json(data, "model", "export", "small", tmp_path / "out")
    asked = ("--dtype", "float32", PROMPT)
    packed = noidle_json(data, "run", "score", "-m", "small", *asked)
    plain = noidle_json(data, "run", "score", "-m", tmp_path / "out", *asked)
    # bfloat16 rounds what the codes stand for
    assert plain["logprobs"] == pytest.approx(packed["logprobs"], abs=0.5)


REFUSED = {
    "taken": (["add", "LLAMA"], "'tiny-llama' is taken"),
    "name": (["add", "LLAMA", "--name", "../up"], "--name = '../up'"),
    "absent": (["add", "NOWHERE"], "allowed is a folder that exists"),
    "empty": (["add", "EMPTY", "--name", "e"], "config.json"),
    "format": (["add", "LLAMA", "--name", "e", "--format", "float32"], "int8 or int4"),
    "short": (["add", "LLAMA", "--name", "e", "--format", "int4", "--text", "SHORT"], "200"),
    "show": (["show", "nobody"], "small, tiny-llama"),
    "remove": (["remove", "nobody"], "small, tiny-llama"),
    "device": (["show", "small", "--memory", "--device", "abacus"], "--device = 'abacus'"),
    "layers": (["show", "small", "--memory", "--host-layers", "4"], "0 to 3"),
    "export": (["export", "nobody", "NOWHERE"], "small, tiny-llama"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_wrong_is_said_in_one_line(
    data: Path, checkpoints: Path, tmp_path: Path, case: str
):
    given, words = REFUSED[case]
    (tmp_path / "empty").mkdir()
    (tmp_path / "short").write_text("too short")
    places = {
        "LLAMA": checkpoints / "tiny-llama",
        "EMPTY": tmp_path / "empty",
        "SHORT": tmp_path / "short",
        "NOWHERE": tmp_path / "nowhere",
    }
    done = noidle(data, "model", *(places.get(one, one) for one in given))
    assert words in refusal(done)


def test_a_damaged_model_is_refused_and_leaves_nothing(checkpoints: Path, tmp_path: Path):
    folder = tmp_path / "damaged"
    folder.mkdir()
    for file in (checkpoints / "tiny-llama").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    part = next(folder.glob("model-00003*"))
    part.write_bytes(part.read_bytes()[:-8])
    data = tmp_path / "data"
    assert part.name in refusal(noidle(data, "model", "add", folder))
    assert noidle_json(data, "model", "list") == []
    left = [path for path in (data / "models").rglob("*") if path.is_file()]
    assert left == []


def test_a_model_that_is_removed_is_gone(checkpoints: Path, tmp_path: Path):
    noidle_json(tmp_path, "model", "add", checkpoints / "tiny-qwen")
    freed = noidle_json(tmp_path, "model", "remove", "tiny-qwen")["freed_bytes"]
    assert freed > 500_000
    assert noidle_json(tmp_path, "model", "list") == []
    assert "no models" in noidle(tmp_path, "model", "list").stdout


@pytest.fixture(scope="module")
def local(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Local]:
    """A cluster that is up before any model is there."""
    found = Local(tmp_path_factory.mktemp("cluster"))
    try:
        found.up(*TENSOR)
        yield found
    finally:
        found.close()


def test_a_cluster_that_is_up_uses_a_new_model_at_once(local: Local, checkpoints: Path):
    found = noidle_json(local.root, "model", "add", checkpoints / "tiny-qwen", "--name", "fresh")
    assert found["cluster"] is True
    result = local.answer(PROMPT, model="fresh", max_tokens=12)
    assert result.state is JobState.DONE, result.error
    own = noidle_json(local.root, "run", "generate", "-m", "fresh", "--max-tokens", "12", PROMPT)
    assert list(result.tokens or ()) == own["tokens"]
    assert result.revision == own["revision"]


def test_pools_find_a_model_that_nobody_told_them_of(local: Local, checkpoints: Path):
    add_model(ModelStore(local.root), checkpoints / "tiny-llama", "untold")
    with Client(local.file.url) as client:

        def accepted() -> bool:
            try:
                job = client.generate(PROMPT, model="untold", max_tokens=2)
            except InvalidJob:
                return False
            return job.result(timeout_s=60).state is JobState.DONE

        wait_for(accepted, "a model that the pools found")


def test_a_model_is_kept_for_the_jobs_that_need_it(local: Local, checkpoints: Path):
    noidle_json(local.root, "model", "add", checkpoints / "tiny-qwen", "--name", "needed")
    with Client(local.file.url) as client:
        job = client.generate(PROMPT, model="needed", max_tokens=8000)
        wait_for(lambda: job.status().state is JobState.RUNNING, "a job that runs")
        assert job.id in refusal(noidle(local.root, "model", "remove", "needed"))
        noidle_json(local.root, "model", "remove", "needed", "--force")
        # what runs has its weights in memory
        assert job.status().state is JobState.RUNNING
        job.cancel()
        with pytest.raises(InvalidJob, match="needed"):
            client.generate(PROMPT, model="needed")
