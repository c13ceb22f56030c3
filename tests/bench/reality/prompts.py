"""Prompts of as many tokens as the trace says, and as many bytes as the router expects of them; no
two begin alike. Owns the words; knows nothing of jobs."""

import random
from collections.abc import Callable, Sequence

ECHO_BYTES_A_TOKEN = 3
_WORD_BYTES = 2 * ECHO_BYTES_A_TOKEN - 1


def echo_prompt(number: int, tokens: int) -> str:
    """The echo takes a word for a token and the space behind it for another."""
    words = [_word(number + at) for at in range(-(-tokens // 2))]
    text = " ".join(words) + (" " if tokens % 2 == 0 else "")
    # what the router reckons is one more than whole tokens of bytes
    over = len(text) - (tokens * ECHO_BYTES_A_TOKEN - 1)
    return text[over:]


def _word(number: int) -> str:
    return f"{number * 7919 % 10**_WORD_BYTES:0{_WORD_BYTES}d}"


class Words:
    """Words that are one token each, wherever they stand in a text."""

    def __init__(self, words: Sequence[str], bytes_per_token: float) -> None:
        """`bytes_per_token`: what the router believes of the model."""
        mean = bytes_per_token
        self._short = [word for word in words if len(word.encode()) <= mean]
        self._long = [word for word in words if len(word.encode()) > mean]
        assert self._short
        assert self._long
        self._mean = mean

    def prompt(self, number: int, tokens: int) -> str:
        rng = random.Random(number)
        parts: list[str] = []
        size = 0
        for at in range(tokens):
            behind = size < at * self._mean
            word = rng.choice(self._long if behind else self._short)
            parts.append(word)
            size += len(word.encode())
        return "".join(parts)


def single_words(
    vocabulary: int, decode: Callable[[Sequence[int]], str], encode: Callable[[str], Sequence[int]]
) -> list[str]:
    """Tokens that are a space and letters, and stay what they are between others of that kind."""
    shown = (decode([token]) for token in range(vocabulary))
    found = [word for word in shown if word[:1] == " " and word[1:].isalpha() and word.isascii()]
    return [word for word in found if len(encode(word * 3)) == 3]
