"""How much of the time training gets beside others."""

import itertools

import pytest

from engines.tensor.sharing import BESIDE, LEAST, RANKS, Turns, share_of_training
from noidle.jobs import JobClass

BACKGROUND, STANDARD = RANKS[JobClass.BACKGROUND], RANKS[JobClass.STANDARD]
INTERACTIVE = RANKS[JobClass.INTERACTIVE]


@pytest.mark.parametrize(
    ("rank", "others", "unread_rank", "wanted"),
    [
        (BACKGROUND, False, None, 1.0),
        (BACKGROUND, True, None, BESIDE),
        (BACKGROUND, True, INTERACTIVE, LEAST),
        (STANDARD, True, INTERACTIVE, LEAST),
        # nothing that is no more urgent than training stops it
        (BACKGROUND, True, BACKGROUND, BESIDE),
        (INTERACTIVE, True, INTERACTIVE, BESIDE),
        (STANDARD, True, BACKGROUND, BESIDE),
    ],
)
def test_the_share_falls_with_what_is_beside_it(rank, others, unread_rank, wanted):
    assert share_of_training(rank, others=others, unread_rank=unread_rank) == wanted


@pytest.mark.parametrize("share", [1.0, BESIDE, LEAST])
@pytest.mark.parametrize("parts_s", [(0.25,), (0.05, 0.5)])
def test_training_gets_its_share_of_the_time_and_others_the_rest(share, parts_s):
    turns, now_s, learnt_s = Turns(), 0.0, 0.0
    parts = itertools.cycle(parts_s)
    while now_s < 200:
        # others take short steps
        now_s += 0.01
        if turns.due(share, now_s):
            part_s = next(parts)
            turns.took(now_s, now_s + part_s)
            now_s, learnt_s = now_s + part_s, learnt_s + part_s
    assert learnt_s / now_s == pytest.approx(share, rel=0.1)


def test_a_prompt_that_was_read_gives_training_its_turn_back_at_once():
    turns = Turns()
    turns.took(0.0, 1.0)
    assert not turns.due(LEAST, 15.9)
    assert turns.due(LEAST, 16.0)
    assert turns.due(BESIDE, 2.0)
