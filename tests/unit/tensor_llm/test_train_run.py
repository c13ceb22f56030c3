import pytest
import torch

from noidle.errors import CheckpointError, InvalidJob
from noidle.jobs import ModelShape, Train
from tensor_llm.checkpoint import load_model
from tensor_llm.store import ModelStore
from tensor_llm.train_run import TrainRun
from tensor_llm.train_state import UNFINISHED_KEPT
from tests.unit.tensor_llm.builders import JAPANESE, TEXT

SHAPE = ModelShape(layers=2, hidden=32, heads=4, kv_heads=2, vocabulary=300, context=32)
JOB = Train(model="mini", path="x", shape=SHAPE, steps=12, batch=4, warmup_steps=2)
DOCUMENTS = [TEXT, JAPANESE * 20]


@pytest.fixture
def store(tmp_path) -> ModelStore:
    return ModelStore(tmp_path)


def open_run(store: ModelStore, revision: str | None = None, **changes: object) -> TrainRun:
    job = JOB.model_copy(update=changes)
    return TrainRun.open(store, job, DOCUMENTS, seed=4, revision=revision)


def steps(run: TrainRun, count: int) -> list[float]:
    return [run.trainer.step() for _ in range(count)]


def test_slices_that_each_end_in_a_checkpoint_give_the_curve_of_one_run(store, tmp_path):
    whole = open_run(ModelStore(tmp_path / "other"))
    wanted = steps(whole, 12)
    curve, revision = [], None
    for part in (5, 4, 3):
        run = open_run(store, revision)
        curve += steps(run, part)
        revision = run.save(f"token{part}").revision
    assert curve == wanted
    assert run.trainer.done
    assert run.trainer.report() == whole.trainer.report()
    assert revision == "step-000012-token3"


def test_a_run_saved_before_its_first_step_goes_on_from_there(store, tmp_path):
    wanted = steps(open_run(ModelStore(tmp_path / "other")), 4)
    revision = open_run(store).save("aa").revision
    assert revision == "step-000000-aa"
    assert steps(open_run(store, revision), 4) == wanted


def test_the_saved_model_is_the_trained_one(store):
    run = open_run(store)
    steps(run, 3)
    info = run.save("aa")
    loaded = load_model(store, "mini")
    token_BT = torch.tensor([loaded.tokenizer.encode("the router holds a job")])
    with torch.no_grad():
        assert torch.equal(loaded.model(token_BT), run.trainer.model(token_BT))
    assert info == loaded.info
    assert info.bytes_per_token == pytest.approx(run.bytes_per_token)


def test_what_was_saved_does_not_change_when_training_goes_on(store):
    run = open_run(store)
    steps(run, 2)
    revision = run.save("aa").revision
    resumed = open_run(store, revision)
    before = load_model(store, "mini", revision).model.embedding.weight.clone()
    steps(run, 2)
    steps(resumed, 2)
    assert torch.equal(load_model(store, "mini", revision).model.embedding.weight, before)


def test_two_jobs_that_train_one_model_leave_each_other_what_they_go_on_from(store):
    """The one with fewer steps lost its checkpoint as soon as the other wrote, and failed."""
    ahead = open_run(store)
    steps(ahead, 6)
    ahead.save("a6")
    behind = TrainRun.open(store, JOB.model_copy(update={"steps": 30}), DOCUMENTS, seed=9)
    behind_at = behind.save("b6").revision
    for step in range(7, 12):
        steps(ahead, 1)
        ahead_at = ahead.save(f"a{step}").revision
    assert open_run(store, ahead_at).trainer.steps_done == 11
    job = JOB.model_copy(update={"steps": 30})
    again = TrainRun.open(store, job, DOCUMENTS, seed=9, revision=behind_at)
    for step in range(7, 12):
        steps(again, 1)
        again.save(f"b{step}")
    assert ahead_at in store.revisions("mini")


def test_what_runs_may_go_on_from_is_bounded(store):
    """Cancelled runs would fill the disk."""
    for seed in range(UNFINISHED_KEPT + 4):
        TrainRun.open(store, JOB, DOCUMENTS, seed=seed).save(f"s{seed}")
    kept = store.revisions("mini")
    assert len(kept) == UNFINISHED_KEPT
    assert kept[-1] == f"step-000000-s{UNFINISHED_KEPT + 3}"


def test_another_job_begins_on_the_weights_there_are(store):
    first = open_run(store)
    steps(first, 5)
    first.save("aa")
    # its shape is not asked for again
    second = open_run(store, shape=ModelShape(), steps=4)
    assert second.trainer.model.config == first.trainer.model.config
    assert second.trainer.steps_done == 0
    steps(second, 4)
    assert second.save("bb").revision == "step-000009-bb"
    report = second.trainer.report()
    assert report.held_out_loss_before == pytest.approx(first.trainer.evaluate(), rel=1e-6)


def test_only_the_last_revisions_stay(store):
    run = open_run(store)
    for token in "abcde":
        steps(run, 1)
        run.save(token)
    assert [name[-1] for name in store.revisions("mini")] == ["c", "d", "e"]
    assert store.current("mini") == "step-000005-e"


def test_a_checkpoint_of_another_job_is_refused(store):
    run = open_run(store)
    steps(run, 1)
    revision = run.save("aa").revision
    with pytest.raises(CheckpointError, match="belongs to a job with other settings"):
        open_run(store, revision, steps=13)


def test_a_revision_without_training_state_is_refused(store):
    run = open_run(store)
    steps(run, 1)
    revision = run.save("aa").revision
    (store.directory("mini") / "training.json").unlink()
    with pytest.raises(CheckpointError, match="holds no training state"):
        open_run(store, revision)


def test_too_short_a_text_is_refused(store):
    with pytest.raises(InvalidJob, match="more than 32 tokens, or a shorter sequence"):
        TrainRun.open(store, JOB, ["the router"], seed=1)
