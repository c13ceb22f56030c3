"""How values are shown in errors, and that errors survive Celery's backend."""

import pickle

import pytest

from noidle import errors
from noidle.errors import InvalidJob, JobFailed, NoidleError, printable, shorten


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("short", "'short'"),
        ("x" * 81, "'" + "x" * 79 + "… (81 characters)"),
        (b"x" * 90, "b'" + "x" * 78 + "… (90 bytes)"),
        (["x" * 90], "['" + "x" * 78 + "…"),
        ("\ud800", "'\\ud800'"),
        (10**5000, "a number of thousands of digits"),
    ],
    ids=lambda part: shorten(part, 20),
)
def test_a_value_is_shown_in_at_most_eighty_characters(value, shown):
    assert shorten(value) == shown


def test_text_from_outside_cannot_break_a_line_or_the_terminal():
    assert printable("a\nb\x1b[0m\ud800") == "a\\nb\\x1b[0m\\ud800"
    assert printable("x" * 81) == "x" * 80 + "…"


def test_every_error_can_be_built_from_its_message_alone():
    """Celery's result backend keeps no more of an exception than its message."""
    found = [one for one in vars(errors).values() if isinstance(one, type)]
    assert JobFailed in found
    for kind in found:
        assert issubclass(kind, NoidleError)
        assert str(kind("why")) == "why"
        assert str(pickle.loads(pickle.dumps(kind("why")))) == "why"


def test_a_refusal_keeps_its_parts_as_fields():
    error = InvalidJob.of("top_k", 0, "a whole number from 1")
    assert (error.field, error.value, error.allowed) == ("top_k", "0", "a whole number from 1")
    assert str(error) == "top_k = 0: allowed is a whole number from 1"
