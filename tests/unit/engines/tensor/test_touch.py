"""Bringing weights into memory."""

import pytest

from engines.tensor.porter import Progress
from engines.tensor.touch import touch, weights_of
from noidle.jobs import ModelShape
from tensor_llm.config import ModelConfig
from tensor_llm.kernels.binding import pack_decoder
from tensor_llm.model import new_decoder
from tensor_llm.quantization import WeightFormat

CONFIG = ModelConfig.of_shape(ModelShape(layers=2, hidden=64, heads=2, kv_heads=1, vocabulary=272))
MATRICES = 2 * 7 + 2


@pytest.mark.parametrize("format_", [None, WeightFormat.INT8])
def test_every_weight_is_touched_with_a_sign_of_life(format_):
    model = new_decoder(CONFIG, 1)
    norms = [one for one in model.parameters() if one.dim() == 1]
    if format_:
        pack_decoder(model, format_)
    marks = []
    touch(model, Progress(lambda: marks.append(1) or 0.0, 60))
    tensors = {one.data_ptr() for one in weights_of(model)}
    # codes and scales each; the head is the embedding
    assert len(tensors) == len(norms) + (MATRICES - 1) * (2 if format_ else 1)
    # one from the progress itself
    assert len(marks) - 1 >= len(tensors)


def test_what_lies_elsewhere_is_left_alone():
    touch(new_decoder(CONFIG, 1).to("meta"), Progress(lambda: 0.0, 60))
