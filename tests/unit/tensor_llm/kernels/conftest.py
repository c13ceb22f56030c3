"""Every level this processor can run, and the same numbers every time."""

import shutil

import pytest
import torch

from tensor_llm.kernels.library import Kernels, all_kernels


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def levels() -> list[Kernels]:
    if shutil.which("c++") is None or shutil.which("ninja") is None:
        pytest.skip("no C++ compiler and ninja on the path: the kernels cannot be built")
    return all_kernels()
