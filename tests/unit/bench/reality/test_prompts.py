"""Prompts of just so many tokens, and bytes as the router expects them."""

import pytest

from engines.echo.answer import PIECES
from noidle.beginning import FIRST_BYTES
from noidle.snapshot import ModelInfo
from routing.prediction import prompt_tokens
from tests.bench.reality.prompts import ECHO_BYTES_A_TOKEN, Words, echo_prompt, single_words

ECHO = ModelInfo(name="echo", bytes_per_token=ECHO_BYTES_A_TOKEN)


@pytest.mark.parametrize("tokens", [1, 2, 3, 10, 11, 1500, 8191])
def test_echo_and_router_count_the_tokens_that_were_asked_for(tokens: int) -> None:
    text = echo_prompt(7, tokens)
    assert len(PIECES.findall(text)) == tokens
    assert prompt_tokens(len(text.encode()), ECHO) == tokens


def test_no_two_prompts_begin_alike() -> None:
    beginnings = {echo_prompt(number, 400)[:FIRST_BYTES] for number in range(3000)}
    assert len(beginnings) == 3000


def test_words_hold_to_the_bytes_a_token_that_the_router_believes_in() -> None:
    words = Words([" a", " bee", " wonderful"], bytes_per_token=4.4)
    model = ModelInfo(name="mini", bytes_per_token=4.4)
    for tokens in (50, 500):
        text = words.prompt(1, tokens)
        assert len(text.split()) == tokens
        assert abs(prompt_tokens(len(text.encode()), model) - tokens) <= 3
    assert words.prompt(1, 50) != words.prompt(2, 50)


def test_only_words_that_stay_one_token_are_taken() -> None:
    """A tokenizer that joins ` to to` into one token: ` to` is not what it is alone."""
    vocabulary = [" to", " be", "be", " 7", " to to"]

    def encode(text: str) -> list[int]:
        joined = text.replace(" to to", "J")
        return [ord(letter) for letter in joined if letter in "J "]

    found = single_words(len(vocabulary), lambda tokens: vocabulary[tokens[0]], encode)
    assert found == [" be"]
