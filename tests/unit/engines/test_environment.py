"""What a pool tells its engine."""

from pathlib import Path

import pytest

from engines.environment import EngineEnvironment
from noidle.errors import ConfigError

FULL = EngineEnvironment(
    engine="cuda",
    data_dir=Path("/data"),
    text_dir=Path("/data/text"),
    storage="s",
    threads=3,
    slots=4,
    stand_in=True,
    dtype="float32",
    device="cuda:1",
    memory_bytes=1 << 30,
    preload=("a", "b"),
)


def test_what_a_pool_writes_the_engine_reads():
    assert EngineEnvironment.read(FULL.variables()) == FULL


def test_absent_fields_stay_absent():
    few = EngineEnvironment(engine="cpu", data_dir="/d", text_dir="/t", storage="s")
    assert "NOIDLE_DTYPE" not in few.variables()
    assert EngineEnvironment.read({**few.variables(), "PATH": "x"}) == few


def test_relative_folders_are_written_absolute():
    few = EngineEnvironment(engine="cpu", data_dir="d", text_dir="t", storage="s")
    assert few.variables()["NOIDLE_DATA_DIR"] == str(Path("d").absolute())


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("NOIDLE_THREADS", "0"),
        ("NOIDLE_ENGINE", "tpu"),
        ("NOIDLE_DTYPE", "int3"),
        ("NOIDLE_THREAD", "1"),
    ],
)
def test_a_wrong_variable_stops_the_start_with_its_name(variable, value):
    with pytest.raises(ConfigError) as refused:
        EngineEnvironment.read({**FULL.variables(), variable: value})
    assert refused.value.variable == variable
    assert value in str(refused.value)


def test_an_unknown_variable_is_answered_with_the_nearest():
    with pytest.raises(ConfigError, match="NOIDLE_THREADS"):
        EngineEnvironment.read({**FULL.variables(), "NOIDLE_THREAD": "1"})
