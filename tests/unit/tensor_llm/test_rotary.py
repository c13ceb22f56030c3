import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import LlamaConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from tensor_llm.families.config_file import read_config_file
from tensor_llm.rope_scaling import RopeScaling
from tensor_llm.rotary import frequencies
from tests.unit.tensor_llm.builders import make_config
from tests.unit.tensor_llm.checkpoints import SIZES

FACTORS = st.floats(1.0, 64.0)
CONTEXTS = st.integers(16, 8192)
SCALINGS = st.one_of(
    st.fixed_dictionaries({"rope_type": st.just("linear"), "factor": FACTORS}),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("llama3"),
            "factor": FACTORS,
            "original_max_position_embeddings": CONTEXTS,
            "low_freq_factor": st.floats(0.5, 2.0),
            "high_freq_factor": st.floats(2.5, 8.0),
        }
    ),
    st.fixed_dictionaries(
        {
            "rope_type": st.just("yarn"),
            "factor": FACTORS,
            "original_max_position_embeddings": CONTEXTS,
        },
        optional={
            "beta_fast": st.floats(4.0, 64.0),
            "beta_slow": st.floats(0.5, 3.0),
            "truncate": st.booleans(),
            "attention_factor": st.floats(0.5, 2.0),
            "mscale": st.sampled_from([0.0, 0.7, 1.0]),
            "mscale_all_dim": st.sampled_from([0.0, 0.5, 1.0]),
        },
    ),
)


@settings(max_examples=300, deadline=None)
@given(
    scaling=SCALINGS,
    theta=st.floats(100.0, 5e6),
    half_head=st.integers(1, 128),
)
def test_frequencies_equal_those_of_transformers(scaling, theta, half_head):
    rope = {**scaling, "rope_theta": theta}
    theirs = LlamaConfig(**SIZES, head_dim=2 * half_head, rope_parameters=rope)
    config = read_config_file({**theirs.to_dict(), "architectures": None}, "config.json")
    wanted_D, wanted_scale = ROPE_INIT_FUNCTIONS[scaling["rope_type"]](theirs, "cpu")
    frequency_D, scale = frequencies(config)
    assert torch.allclose(frequency_D, wanted_D, rtol=1e-5, atol=0)
    assert scale == pytest.approx(wanted_scale)


def test_unstretched_frequencies_fall_from_one_in_equal_ratios():
    frequency_D, scale = frequencies(make_config(head_size=8, rope_theta=10_000.0))
    assert torch.allclose(frequency_D, torch.tensor([1.0, 0.1, 0.01, 0.001]))
    assert scale == 1.0


def test_frequencies_made_while_answering_serve_training():
    """A tensor made in inference mode cannot be saved for a backward pass."""
    config = make_config(rope_theta=777.0)
    with torch.inference_mode():
        frequencies(config)
    assert not frequencies(config)[0].is_inference()


def test_frequencies_are_made_once_a_device():
    config = make_config(rope_theta=778.0)
    assert (
        frequencies(config, torch.device("cpu"))[0] is frequencies(config, torch.device("cpu"))[0]
    )


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"kind": "ntk"}, "kind = 'ntk': allowed is one of linear, llama3, yarn"),
        ({"factor": 0}, "factor = 0: allowed is a number"),
        ({"factor": float("nan")}, "factor = nan"),
        ({"factor": True}, "factor = True"),
        ({"original_context": None}, "original_context = None"),
        ({"original_context": 0}, "original_context = 0"),
        ({"high_frequency_factor": 1.0}, "above low_frequency_factor"),
        ({"truncate": 1}, "truncate = 1"),
        ({"attention_factor": -1.0}, "attention_factor = -1.0"),
    ],
)
def test_wrong_numbers_are_refused_by_field(fields, fault):
    right = {"kind": "llama3", "factor": 2.0, "original_context": 64}
    with pytest.raises(ValueError, match=fault):
        RopeScaling(**(right | fields))


def test_a_scaling_survives_its_json():
    scaling = RopeScaling(kind="yarn", factor=3.5, original_context=99, attention_factor=1.25)
    assert RopeScaling.from_json(scaling.to_json()) == scaling
    for wrong in (3, [], {"kind": "linear"}, {"kind": "linear", "factor": 2.0, "more": 1}):
        with pytest.raises(ValueError, match=r"allowed|missing|no such field"):
            RopeScaling.from_json(wrong)
