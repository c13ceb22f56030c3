import pytest
import torch

from tensor_llm.upload import Download, upload


@pytest.mark.parametrize(
    ("values", "dtype"),
    [
        ([], torch.int64),
        ([2**63 - 1, -1], torch.int64),
        ([0.5], torch.float32),
        ([True], torch.bool),
    ],
)
def test_what_is_sent_to_a_device_comes_back(values, dtype):
    there = upload(values, dtype, "cpu")
    assert there.dtype == dtype
    assert Download(there, there).read() == [values, values]
