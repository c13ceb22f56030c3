"""Who says what in a conversation at a terminal."""

import os
import signal

import pytest

from noidle.errors import InvalidJob
from noidle.jobs import Role
from ops.run.conversation import converse
from ops.run.figures import AnswerFigures
from ops.run.session import Answer

FIGURES = AnswerFigures(
    prompt_tokens=1,
    prefix_tokens=0,
    tokens=1,
    tokenize_ms=0.0,
    prefill_ms=1.0,
    decode_ms=1.0,
    stream_ms=0.0,
)


class Terminal:
    """A person who types these lines; an exception is a key pressed instead."""

    def __init__(self, *lines):
        self._lines = list(lines)
        self.shown = []
        self.heard = []

    def ask(self, prompt):
        line = self._lines.pop(0) if self._lines else EOFError()
        if isinstance(line, BaseException):
            raise line
        return line

    def reply(self, messages, stopped):
        self.heard.append([(one.role.value, one.content) for one in messages])
        return Answer(
            text=f"answer {len(self.heard)}", tokens=(1,), finish_reason="eos", figures=FIGURES
        )

    def talk(self, system=None, reply=None):
        converse(reply or self.reply, system, ask=self.ask, say=self.shown.append)
        return self.heard


def test_each_turn_sees_those_before_it():
    first = [("system", "be brief"), ("user", "one")]
    second = [*first, ("assistant", "answer 1"), ("user", "two")]
    third = [*second, ("assistant", "answer 2"), ("user", "three")]
    assert Terminal("one", "two", "three").talk("be brief") == [first, second, third]


def test_exit_ends_it_and_empty_lines_say_nothing():
    assert Terminal("", "  ", "one", "/exit", "two").talk() == [[("user", "one")]]


def test_bytes_that_are_no_text_show_as_such():
    assert Terminal("a\udcffb").talk() == [[("user", "a\ufffdb")]]


def test_clear_starts_anew_with_the_same_system_message():
    heard = Terminal("one", "/clear", "two").talk("s")
    assert heard[-1] == [("system", "s"), ("user", "two")]


def test_a_turn_that_is_refused_is_as_if_it_was_not_said():
    terminal = Terminal("too long", "short")

    def reply(messages, stopped):
        if messages[-1].content == "too long":
            raise InvalidJob.of("prompt", "900 tokens", "fewer than 512")
        return terminal.reply(messages, stopped)

    assert terminal.talk(reply=reply) == [[("user", "short")]]
    assert any("900 tokens" in line for line in terminal.shown)


def test_control_c_while_asked_leaves_at_the_second_time_only():
    assert Terminal(KeyboardInterrupt(), "one").talk() == [[("user", "one")]]
    with pytest.raises(KeyboardInterrupt):
        Terminal(KeyboardInterrupt(), KeyboardInterrupt(), "one").talk()
    assert Terminal(KeyboardInterrupt(), "one", KeyboardInterrupt(), "two").talk()[-1][-1] == (
        Role.USER.value,
        "two",
    )


@pytest.fixture
def hears_control_c():
    """Who was started in the background may have been told to ignore it."""
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("hears_control_c")
def test_control_c_stops_the_answer_and_not_the_conversation():
    terminal = Terminal("long", "short")

    def reply(messages, stopped):
        if messages[-1].content == "long":
            assert not stopped()
            os.kill(os.getpid(), signal.SIGINT)
            assert stopped()
        return terminal.reply(messages, stopped)

    heard = terminal.talk(reply=reply)
    assert [turn[-1][1] for turn in heard] == ["long", "short"]
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


@pytest.mark.usefixtures("hears_control_c")
def test_control_c_twice_in_an_answer_is_not_waited_for():
    def reply(messages, stopped):
        os.kill(os.getpid(), signal.SIGINT)
        os.kill(os.getpid(), signal.SIGINT)
        raise AssertionError("went on")

    with pytest.raises(KeyboardInterrupt):
        Terminal("long").talk(reply=reply)
