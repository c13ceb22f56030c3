"""What the environment may say, and how a wrong variable stops the start."""

from pathlib import Path

import pytest

from noidle.errors import ConfigError
from workers.settings import Settings, load_settings


def test_an_empty_environment_gives_the_defaults():
    settings = load_settings({})
    assert (settings.lease_s, settings.grace_s, settings.visibility_s) == (8.0, 10.0, 5.0)
    assert settings.texts == settings.data_dir / "text"


def test_an_empty_variable_counts_as_not_set():
    """An empty NOIDLE_DATA_DIR was the working directory."""
    empty = {f"NOIDLE_{name.upper()}": "" for name in Settings.model_fields}
    assert load_settings(empty) == load_settings({})


def test_each_field_has_its_variable():
    settings = load_settings(
        {
            "NOIDLE_URL": "rediss://:secret@db:6380/1",
            "NOIDLE_DATA_DIR": "~/models",
            "NOIDLE_HOST": "left",
            "NOIDLE_SLOTS": "6",
            "NOIDLE_PRELOAD": "one, two",
            "NOIDLE_DTYPE": "int8",
            "HOME_OF_NOIDLE": "not ours",
        }
    )
    assert settings.url == "rediss://:secret@db:6380/1"
    assert settings.data_dir == Path("~/models").expanduser()
    assert (settings.host, settings.slots, settings.preload) == ("left", 6, ("one", "two"))
    assert settings.dtype == "int8"


def test_what_the_caller_gives_goes_before_the_environment():
    settings = load_settings({"NOIDLE_SLOTS": "6", "NOIDLE_HOST": "left"}, slots=2, host=None)
    assert (settings.slots, settings.host) == (2, "left")


def test_only_the_named_environment_is_read(monkeypatch):
    monkeypatch.setenv("NOIDLE_SLOTS", "7")
    assert load_settings({}).slots is None
    assert load_settings().slots == 7


@pytest.mark.parametrize(
    ("variable", "value", "allowed"),
    [
        ("NOIDLE_SLOTS", "0", "a whole number from 1 to 1024"),
        ("NOIDLE_SLOTS", "many", "a whole number from 1 to 1024"),
        ("NOIDLE_LEASE_S", "-1", "a number from 1 to 3600"),
        ("NOIDLE_HOST", "a b", "letters, digits"),
        ("NOIDLE_LOG_LEVEL", "loud", "debug or info"),
        ("NOIDLE_DTYPE", "int3", "float32 or bfloat16 or int8 or int4"),
        ("NOIDLE_SLOT", "3", "did you mean NOIDLE_SLOTS?"),
        ("NOIDLE_slots", "3", "did you mean NOIDLE_SLOTS?"),
        ("NOIDLE_QQQQQQQQ", "3", "NOIDLE_URL"),
    ],
)
def test_a_wrong_variable_is_named_with_its_value_and_what_is_allowed(variable, value, allowed):
    with pytest.raises(ConfigError) as caught:
        load_settings({variable: value})
    assert (caught.value.variable, caught.value.value) == (variable, repr(value))
    assert allowed in caught.value.allowed
    assert allowed in str(caught.value)


@pytest.mark.parametrize("url", ["http://:secret@host", "redis://", "secret"])
def test_a_wrong_address_is_refused_without_showing_its_password(url):
    with pytest.raises(ConfigError) as caught:
        load_settings({"NOIDLE_URL": url})
    assert caught.value.variable == "NOIDLE_URL"
    assert "secret" not in str(caught.value)
    assert "redis://[:PASSWORD@]HOST" in str(caught.value)


def test_the_address_is_not_part_of_the_representation():
    assert "secret" not in repr(Settings(url="redis://:secret@host/0"))
