"""Training goes on with models that were made elsewhere."""

import math

import pytest
import torch

from noidle.errors import InvalidJob
from noidle.jobs import Train
from tensor_llm.adding import add_model
from tensor_llm.checkpoint import load_model
from tensor_llm.families import export
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import ModelStore
from tensor_llm.train_run import TrainRun
from tests.unit.tensor_llm.builders import TEXT
from tests.unit.tensor_llm.checkpoints import KINDS, edit_json, make_theirs, write_theirs
from tests.unit.tensor_llm.test_parity import logits_of, read_theirs

JOB = Train(model="mini", text=TEXT, steps=4, batch=4, sequence=24, learning_rate=1e-3)


@pytest.fixture
def store(tmp_path) -> ModelStore:
    return ModelStore(tmp_path / "data")


def add(store, folder, kind, dtype=torch.float32, **options):
    source = write_theirs(make_theirs(kind).to(dtype), folder)
    (source / "chat_template.jinja").write_text("{{ messages[0].content }}")
    edit_json(source / "generation_config.json", eos_token_id=[3, 5])
    return add_model(store, source, "mini", **options)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_added_model_is_trained_and_saved_with_all_that_makes_it(store, tmp_path, kind, dtype):
    base = add(store, tmp_path / "theirs", kind, dtype)
    before = load_model(store, "mini")
    run = TrainRun.open(store, JOB, [TEXT], seed=0)
    for _ in range(4):
        assert math.isfinite(run.trainer.step())
    trained = dict(run.trainer.model.named_parameters())
    for name, parameter in before.model.named_parameters():
        assert not torch.equal(trained[name], parameter), name
    info = run.save("aaaa0001")
    assert info.revision == "step-000004-aaaa0001" != base.revision
    loaded = load_model(store, "mini")
    assert loaded.config == before.config
    assert loaded.config.eos_tokens == (3, 5)
    assert loaded.chat is not None
    # and goes on from what it saved
    again = TrainRun.open(
        store, JOB.model_copy(update={"steps": 4}), [TEXT], seed=0, revision=info.revision
    )
    assert again.trainer.steps_done == 4
    export(store.directory("mini"), tmp_path / "out")
    ours, theirs = logits_of(loaded.model), logits_of(read_theirs(tmp_path / "out"))
    assert (ours - theirs).abs().max() / theirs.abs().max() < 1e-4


@pytest.mark.parametrize("format_", WeightFormat)
def test_a_packed_model_refuses_training_in_words(store, tmp_path, format_):
    add(store, tmp_path / "theirs", "qwen2", format=format_)
    with pytest.raises(InvalidJob, match=rf"model = 'mini': .*packed as {format_}"):
        TrainRun.open(store, JOB, [TEXT], seed=0)


def test_training_leaves_the_added_weights_as_they_were(store, tmp_path):
    add(store, tmp_path / "theirs", "llama 3")
    path = store.directory("mini") / "model.safetensors"
    before = path.read_bytes()
    run = TrainRun.open(store, JOB, [TEXT], seed=0)
    run.trainer.step()
    assert path.read_bytes() == before
