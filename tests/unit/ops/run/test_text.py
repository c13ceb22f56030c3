"""Where the text of a run comes from."""

import io
import sys

import pytest

from noidle.errors import ConfigError, InvalidJob
from ops.run.text import given_text, needed_text


class Input(io.TextIOWrapper):
    """Standard input, at a terminal or not."""

    def __init__(self, data: bytes, *, terminal: bool = False) -> None:
        super().__init__(io.BytesIO(data))
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


@pytest.fixture
def typed(monkeypatch):
    def put(data=b"", *, terminal=False):
        monkeypatch.setattr(sys, "stdin", Input(data, terminal=terminal))

    return put


def test_an_argument_an_option_and_a_file_say_the_same(tmp_path, typed):
    typed(b"not read", terminal=True)
    file = tmp_path / "text"
    file.write_text("über\n", encoding="utf-8")
    assert given_text("über\n", None, None) == "über\n"
    assert given_text(None, "über\n", None) == "über\n"
    assert given_text(None, None, file) == "über\n"


def test_a_dash_and_a_pipe_are_read(typed):
    typed("日本".encode(), terminal=True)
    assert given_text("-", None, None) == "日本"
    typed(b"piped")
    assert given_text(None, None, None) == "piped"


def test_an_option_that_is_a_dash_is_a_text(typed):
    typed(b"piped")
    assert given_text(None, "-", None) == "-"


def test_a_home_in_a_path_is_found(tmp_path, monkeypatch, typed):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "text").write_text("home")
    from pathlib import Path

    assert given_text(None, None, Path("~/text")) == "home"


def test_two_texts_are_refused(typed):
    typed()
    with pytest.raises(ConfigError, match="given twice"):
        given_text("a", "b", None)


def test_nobody_can_be_asked_but_at_a_terminal(typed):
    typed(terminal=True)
    assert given_text(None, None, None) is None
    with pytest.raises(ConfigError, match="no text: give TEXT"):
        needed_text(None, None, None)


def test_what_is_no_text_is_refused(tmp_path, typed):
    typed(b"\xff")
    with pytest.raises(InvalidJob, match="UTF-8"):
        given_text("-", None, None)
    with pytest.raises(InvalidJob, match="cannot read"):
        given_text(None, None, tmp_path / "absent")


def test_a_closed_standard_input_is_refused_in_words(monkeypatch):
    monkeypatch.setattr(sys, "stdin", None)
    for argument in (None, "-"):
        with pytest.raises(InvalidJob, match="standard input is closed"):
            given_text(argument, None, None)
    assert given_text("said", None, None) == "said"
