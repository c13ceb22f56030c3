import pytest

from tensor_llm.assembly import skeleton
from tensor_llm.families.config_file import read_config_file
from tensor_llm.parts import part_of, tensor_shapes
from tests.unit.tensor_llm.builders import make_config
from tests.unit.tensor_llm.checkpoints import KINDS, make_theirs


def shapes_of(model) -> dict[str, tuple[int, ...]]:
    return {name: tuple(one.shape) for name, one in model.named_parameters()}


@pytest.mark.parametrize("kind", KINDS)
def test_the_list_of_tensors_equals_what_the_decoder_has(kind):
    config = read_config_file(make_theirs(kind).config.to_dict(), "config.json")
    model = skeleton(config)
    assert tensor_shapes(config) == shapes_of(model)
    assert config.parameters == sum(one.numel() for one in model.parameters())


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("embedding.weight", "embedding"),
        ("output.weight", "head"),
        ("norm.weight", "norms"),
        ("layers.3.attention_norm.weight", "norms"),
        ("layers.3.attention.query_norm.weight", "norms"),
        ("layers.3.attention.output.bias", "attention"),
        ("layers.3.mlp.down.weight", "mlp"),
    ],
)
def test_every_tensor_is_part_of_something(name, part):
    assert part_of(name) == part


def test_an_untied_head_is_a_tensor_of_its_own():
    assert "output.weight" not in tensor_shapes(make_config(tied_head=True))
    assert "output.weight" in tensor_shapes(make_config(tied_head=False))
