"""Where special tokens stand in a rendered conversation."""

import pytest
import tokenizers
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, pre_tokenizers

from tensor_llm.marks import Marks
from tensor_llm.tokenizer import Tokenizer

TOKENS = [
    AddedToken("<a>", special=True, normalized=False),
    AddedToken("<a><b>", special=True, normalized=False),
    AddedToken("<l>", special=True, normalized=False, lstrip=True),
    AddedToken("<r>", special=True, normalized=False, rstrip=True),
    AddedToken("<lr>", special=True, normalized=False, lstrip=True, rstrip=True),
]
texts = st.lists(st.sampled_from(["<a>", "<b>", "<l>", "<r>", "<lr>", " ", "\n", "x", "\u3000"]))


def inner() -> tokenizers.Tokenizer:
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    made = tokenizers.Tokenizer(models.BPE({char: at for at, char in enumerate(alphabet)}, []))
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.decoder = decoders.ByteLevel()
    made.add_special_tokens(TOKENS)
    return made


OURS, THEIRS = Tokenizer(inner()), inner()


def names(text, foreign=()):
    return [mark.name for mark in Marks(TOKENS).find(text, foreign)]


@given(texts.map("".join))
def test_marks_and_the_spaces_they_take_are_those_of_the_package(text):
    assert OURS.encode(text, special=True) == THEIRS.encode(text).ids


@pytest.mark.parametrize(
    ("text", "foreign", "found"),
    [
        ("<a><b>", [], ["<a><b>"]),
        ("<a><b>", [(3, 6)], ["<a>"]),
        ("<a><a>", [(0, 3)], ["<a>"]),
        ("<a>", [(1, 2)], []),
        ("<a>", [(2, 3)], []),
        ("<a>", [(0, 1)], []),
        ("<a>x<a>", [(3, 4)], ["<a>", "<a>"]),
        ("", [], []),
    ],
)
def test_no_mark_has_a_foreign_character(text, foreign, found):
    assert names(text, foreign) == found


def test_spaces_are_taken_from_foreign_text_too():
    (mark,) = Marks(TOKENS).find("<r>  x", [(3, 6)])
    assert (mark.start, mark.end) == (0, 5)


def test_a_tokenizer_without_special_tokens_has_no_marks():
    assert list(Marks([]).find("<a>", [])) == []
