"""Waits in words."""

import pytest

from noidle.results import Waited
from noidle.waiting import waited_in_words


@pytest.mark.parametrize(
    ("waited", "words"),
    [
        (Waited(held_s=0.0), "waited 0.00 s"),
        (Waited(held_s=0.02), "waited 0.02 s: 0.02 s not yet looked at"),
        (
            Waited(held_s=3.2, causes={"spare": 0.3, "full": 2.9}),
            "waited 3.20 s: 2.90 s all slots full, 0.30 s free slots kept for more urgent work",
        ),
        (
            Waited(held_s=5.0, causes={"kv": 3.0}),
            "waited 5.00 s: 3.00 s too little KV cache free, 2.00 s not yet looked at",
        ),
        # of a newer router
        (Waited(held_s=1.0, causes={"moon": 1.0}), "waited 1.00 s: 1.00 s moon"),
    ],
)
def test_the_longest_comes_first_and_nothing_is_left_out(waited: Waited, words: str) -> None:
    assert waited_in_words(waited) == words
