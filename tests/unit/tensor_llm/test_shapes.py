import pytest
import torch

from tensor_llm.shapes import check_shape


def test_a_fitting_tensor_passes():
    check_shape("x_BT", torch.zeros(2, 3), None, 3)


@pytest.mark.parametrize("sizes", [(2,), (2, 4), (None, None, None)])
def test_another_shape_is_refused_by_name(sizes):
    with pytest.raises(ValueError, match=r"x_BT has shape \(2, 3\)"):
        check_shape("x_BT", torch.zeros(2, 3), *sizes)
