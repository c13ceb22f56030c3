import json

import pytest
import torch

from noidle.errors import CheckpointError
from tensor_llm.train_state import TrainState

SHAPES = {"a": (2, 3), "b": (4,)}


def make_state() -> TrainState:
    return TrainState(
        step=3,
        base_step=40,
        plan={"seed": 1, "learning_rate": 0.1 + 0.2},
        corpus="abc",
        loss=1 / 3,
        held_out_loss_before=None,
        first={name: torch.randn(shape) for name, shape in SHAPES.items()},
        second={name: torch.rand(shape) for name, shape in SHAPES.items()},
    )


def test_a_state_survives_its_files_bit_for_bit(tmp_path):
    state = make_state()
    state.write(tmp_path)
    found = TrainState.read(tmp_path, SHAPES)
    assert found is not None
    for field in ("step", "base_step", "plan", "corpus", "loss", "held_out_loss_before"):
        assert getattr(found, field) == getattr(state, field)
    for name in SHAPES:
        assert torch.equal(found.first[name], state.first[name])
        assert torch.equal(found.second[name], state.second[name])


def test_nothing_there_is_none(tmp_path):
    assert TrainState.read(tmp_path, SHAPES) is None


@pytest.mark.parametrize("field", ["step", "base_step", "plan", "corpus", "loss"])
def test_a_wrong_field_is_named(tmp_path, field):
    make_state().write(tmp_path)
    path = tmp_path / "training.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {field: [1]}))
    with pytest.raises(CheckpointError, match=rf"training\.json: {field}: \[1\]: allowed is"):
        TrainState.read(tmp_path, SHAPES)


def test_moments_of_another_model_are_named(tmp_path):
    make_state().write(tmp_path)
    with pytest.raises(CheckpointError, match=r"training\.safetensors: first\.a: shape"):
        TrainState.read(tmp_path, SHAPES | {"a": (3, 2)})


def test_missing_moments_are_named(tmp_path):
    make_state().write(tmp_path)
    (tmp_path / "training.safetensors").unlink()
    with pytest.raises(CheckpointError, match=r"training\.safetensors: cannot be read"):
        TrainState.read(tmp_path, SHAPES)
