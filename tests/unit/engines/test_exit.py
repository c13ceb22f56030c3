"""Ends of an engine's lives and the waits between them."""

import pytest

from engines.exit import FIRST_WAIT_S, LONGEST_WAIT_S, STEADY_S, Lives, describe


class Clock:
    now_s = 0.0

    def __call__(self):
        return self.now_s


@pytest.fixture
def clock():
    return Clock()


def end(lives, **more):
    lives.begin()
    return finish(lives, **more)


def finish(lives, **more):
    facts = {"pid": 1, "code": 1, "reason": "x", "tail": (), "said_hello": True, "worked": False}
    return lives.end(**{**facts, "expected": False, **more})


def test_the_wait_doubles_with_each_short_life_up_to_a_limit(clock):
    lives = Lives(clock)
    waits = [end(lives).restart_in_s for _ in range(12)]
    assert waits[:3] == [FIRST_WAIT_S, 2 * FIRST_WAIT_S, 4 * FIRST_WAIT_S]
    assert waits[-1] == LONGEST_WAIT_S


def test_a_steady_life_ends_a_row_of_failures(clock):
    lives = Lives(clock)
    end(lives)
    end(lives)
    lives.begin()
    clock.now_s += STEADY_S
    last = finish(lives)
    assert (last.generation, last.failures, last.restart_in_s) == (3, 1, FIRST_WAIT_S)


def test_a_life_that_worked_ends_a_row_of_failures(clock):
    """A few poison jobs kept a healthy engine down for half a minute each."""
    lives = Lives(clock)
    end(lives)
    end(lives)
    assert end(lives, worked=True).restart_in_s == FIRST_WAIT_S
    assert end(lives).failures == 2


def test_long_silence_is_no_steady_life(clock):
    lives = Lives(clock)
    end(lives)
    lives.begin()
    clock.now_s += STEADY_S
    last = finish(lives, said_hello=False)
    assert last.failures == 2


def test_after_a_stop_nothing_restarts(clock):
    assert end(Lives(clock), expected=True).restart_in_s is None


@pytest.mark.parametrize(
    ("code", "killed", "tail", "words"),
    [
        (-9, "run r has not moved for 8 s", (), "run r has not moved"),
        (-9, None, (), "memory runs out"),
        (-11, None, ("last words",), "SIGSEGV: last words"),
        (3, None, ("a", "ImportError: no torch"), "status 3: ImportError: no torch"),
    ],
)
def test_an_end_is_told_in_words(code, killed, tail, words):
    assert words in describe(code, killed, tail)
