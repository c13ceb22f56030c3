import dataclasses

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noidle.errors import CheckpointError
from noidle.jobs import ModelShape
from tensor_llm.config import ModelConfig
from tensor_llm.model import new_decoder
from tests.unit.tensor_llm.builders import make_config


@given(
    layers=st.integers(1, 64),
    kv_heads=st.integers(1, 8),
    group=st.integers(1, 7),
    half_head=st.integers(1, 128),
    tied=st.booleans(),
    theta=st.floats(1, 1e7),
)
def test_a_config_survives_its_json(layers, kv_heads, group, half_head, tied, theta):
    config = make_config(
        layers=layers,
        heads=kv_heads * group,
        kv_heads=kv_heads,
        head_size=2 * half_head,
        tied_head=tied,
        rope_theta=theta,
    )
    assert ModelConfig.from_json(config.to_json()) == config


ALLOWED = [
    ("rope_theta", 2.5),
    ("norm_epsilon", 2.5),
    ("window", None),
    ("rope", None),
    ("full_layers", []),
    ("eos_tokens", []),
]


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(ModelConfig)])
@pytest.mark.parametrize(
    "value", [None, "4", -1, 0, 10**12, 2.5, [], {}, float("nan"), "x" * 10**5]
)
def test_a_wrong_value_is_refused_by_its_field(field, value):
    if any(field == name and value == allowed for name, allowed in ALLOWED):
        return
    data = make_config().to_json() | {field: value}
    with pytest.raises(CheckpointError, match=field) as caught:
        ModelConfig.from_json(data, "somewhere/config.json")
    assert "somewhere/config.json" in str(caught.value)
    assert len(str(caught.value)) < 400


@pytest.mark.parametrize("field", ["layers", "heads", "context", "vocabulary"])
def test_a_missing_field_is_named(field):
    data = make_config().to_json()
    del data[field]
    with pytest.raises(CheckpointError, match=f"{field}: this field is missing"):
        ModelConfig.from_json(data)


def test_an_unknown_field_is_named():
    with pytest.raises(CheckpointError, match="wheels: no such field"):
        ModelConfig.from_json(make_config().to_json() | {"wheels": 4})


def test_another_architecture_is_named():
    with pytest.raises(CheckpointError, match="architecture: 'Mamba' is not supported"):
        ModelConfig.from_json(make_config().to_json() | {"architecture": "Mamba"})


@pytest.mark.parametrize("data", [None, [], "text", 3])
def test_anything_but_an_object_is_refused(data):
    with pytest.raises(CheckpointError, match="one JSON object"):
        ModelConfig.from_json(data)


def test_heads_must_divide_evenly():
    with pytest.raises(ValueError, match="heads = 5: allowed is a multiple of kv_heads = 2"):
        make_config(heads=5)


def test_the_shape_of_a_training_job_becomes_a_config():
    config = ModelConfig.of_shape(ModelShape(hidden=128, heads=4), vocabulary=700)
    assert (config.head_size, config.mlp, config.vocabulary) == (32, 352, 700)
    assert ModelConfig.of_shape(ModelShape(mlp=100)).mlp == 100
    assert ModelConfig.of_shape(ModelShape()).vocabulary == ModelShape().vocabulary


@pytest.mark.parametrize("tied", [True, False])
def test_parameters_are_counted_as_the_decoder_has_them(tied):
    config = make_config(tied_head=tied, head_size=6)
    counted = sum(parameter.numel() for parameter in new_decoder(config, 0).parameters())
    assert config.parameters == counted


def test_a_token_takes_keys_and_values_in_every_layer():
    assert make_config().kv_bytes_per_token(2) == 2 * 2 * 2 * 8 * 2
