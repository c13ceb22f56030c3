"""Which device and which format an engine computes in."""

from pathlib import Path

import pytest
import torch

from engines.environment import EngineEnvironment
from engines.tensor.device import open_device
from noidle.errors import ConfigError
from tensor_llm.quantization import WeightFormat


def environment(engine, **more):
    settings = {"data_dir": Path("/d"), "text_dir": Path("/t"), "storage": "s"}
    return EngineEnvironment(engine=engine, **settings, **more)


@pytest.mark.parametrize(
    ("engine", "dtype", "dense", "packed"),
    [
        ("cpu", None, None, None),
        ("cpu", "float32", torch.float32, None),
        ("cpu", "bfloat16", torch.bfloat16, None),
        ("cpu", "int8", None, WeightFormat.INT8),
        ("cpu", "int4", None, WeightFormat.INT4),
        ("gpu", None, None, None),
        ("gpu", "bfloat16", torch.bfloat16, None),
        ("hybrid", None, torch.float32, None),
    ],
)
def test_weights_lie_as_they_are_stored_unless_a_format_is_wanted(engine, dtype, dense, packed):
    device = open_device(environment(engine, dtype=dtype, stand_in=engine != "cpu"))
    assert (device.dtype, device.format) == (dense, packed)
    assert device.main == torch.device("cpu")


@pytest.mark.parametrize("engine", ["hybrid", "cuda", "gpu"])
def test_only_the_cpu_engine_computes_with_packed_weights(engine):
    with pytest.raises(ConfigError) as refused:
        open_device(environment(engine, dtype="int8", stand_in=True))
    assert refused.value.variable == "NOIDLE_DTYPE"
    assert "float32 or bfloat16" in refused.value.allowed


@pytest.mark.skipif(torch.cuda.is_available(), reason="this machine has a CUDA device")
def test_a_device_that_is_not_there_stops_the_start():
    with pytest.raises(ConfigError, match="no CUDA device"):
        open_device(environment("cuda"))
