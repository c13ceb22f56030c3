import io
import sys

import pytest

from noidle.terminal import harmless, write_answer


class Screen(io.StringIO):
    def isatty(self):
        return True


@pytest.mark.parametrize(
    ("said", "shown"),
    [
        ("plain text\n\tand 日本語 👩‍🚀\r\n", "plain text\n\tand 日本語 👩‍🚀\r\n"),
        ("\x1b]0;title\x07", "\N{REPLACEMENT CHARACTER}]0;title\N{REPLACEMENT CHARACTER}"),
        ("\x9b2J", "\N{REPLACEMENT CHARACTER}2J"),
        ("safe\rfake", "safe\N{REPLACEMENT CHARACTER}fake"),
        ("\x00\x7f", "\N{REPLACEMENT CHARACTER}" * 2),
    ],
)
def test_no_answer_steers_a_terminal(said, shown):
    assert harmless(said) == shown


def test_a_pipe_gets_what_the_model_said_and_a_terminal_what_is_harmless(monkeypatch):
    for stream, wanted in [
        (io.StringIO(), "\x1b[2Jx"),
        (Screen(), "\N{REPLACEMENT CHARACTER}[2Jx"),
    ]:
        monkeypatch.setattr(sys, "stdout", stream)
        write_answer("\x1b[2Jx")
        assert stream.getvalue() == wanted
