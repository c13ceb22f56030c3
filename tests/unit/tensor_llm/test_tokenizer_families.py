"""Tokenizers of the families that people have, held to transformers' own reading of the same
file."""

import unicodedata

import pytest
import tokenizers
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import PreTrainedTokenizerFast

from tensor_llm.text_stream import TextStream
from tests.unit.tensor_llm.builders import JAPANESE, TEXT
from tests.unit.tensor_llm.families import (
    CODE,
    EMOJI,
    FALLBACK,
    FAMILIES,
    family_json,
    family_tokenizer,
)

characters = st.characters(exclude_categories=("Cs",))
# short words that merge, code, and what special tokens are made of
pieces = st.sampled_from(
    [
        "the ",
        "user",
        " plan",
        "isn't",
        "\n",
        "\t",
        "  ",
        "日本",
        "é",
        "👩‍👩‍👧‍👦",
        "🇯🇵",
        "12345",
        "<|",
        "|>",
    ]
)
SPECIAL = st.sampled_from(
    ["<s>", "</s>", "<unk>", "<|im_end|>", "<|im_start|>", "<|eot_id|>", "[INST]", "<0x0A>"]
)
texts = st.lists(st.text(characters, max_size=6) | pieces, max_size=12).map("".join)
families = st.sampled_from(FAMILIES)
SAMPLES = [
    TEXT[:300],
    JAPANESE,
    EMOJI,
    CODE,
    "naïve ﬁ e\u0301 Å",
    "   three spaces  before\tand  after   ",
    "\r\n\t\x00 \u3000",
    " ",
    "",
    "a" * 3000,
]


def theirs(family: str) -> PreTrainedTokenizerFast:
    inner = tokenizers.Tokenizer.from_str(family_json(family))
    return PreTrainedTokenizerFast(tokenizer_object=inner, clean_up_tokenization_spaces=False)


THEIRS = {family: theirs(family) for family in FAMILIES}


def as_kept(family: str, text: str) -> str:
    """The text as the family's normaliser leaves it."""
    if family == "qwen2":
        return unicodedata.normalize("NFC", text)
    if family in FALLBACK:
        text = text.replace("▁", " ")
    # its pre-tokenizer writes no space before one that is there already
    return text.removeprefix(" ") if family == "mistral" else text


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", SAMPLES, ids=range(len(SAMPLES)))
def test_text_becomes_the_tokens_that_transformers_makes_of_it(family, text):
    ours = family_tokenizer(family)
    assert ours.encode(text) == THEIRS[family](text)["input_ids"]
    without = THEIRS[family](text, add_special_tokens=False)["input_ids"]
    assert ours.encode(text, special=True) == without


@given(families, texts)
def test_any_text_becomes_the_tokens_that_transformers_makes_of_it(family, text):
    assert (
        family_tokenizer(family).encode(text)
        == (THEIRS[family](text, split_special_tokens=True)["input_ids"])
    )


@given(families, st.lists(texts | SPECIAL, max_size=6).map("".join))
def test_a_program_s_text_is_read_with_its_special_tokens(family, text):
    wanted = THEIRS[family](text, add_special_tokens=False)["input_ids"]
    assert family_tokenizer(family).encode(text, special=True) == wanted


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("text", SAMPLES, ids=range(len(SAMPLES)))
def test_samples_survive(family, text):
    tokenizer = family_tokenizer(family)
    assert tokenizer.decode(tokenizer.encode(text)) == as_kept(family, text)


@given(families, texts)
def test_any_text_survives_and_reads_as_transformers_does(family, text):
    tokenizer = family_tokenizer(family)
    tokens = tokenizer.encode(text)
    assert tokenizer.decode(tokens) == as_kept(family, text)
    assert tokenizer.decode(tokens) == THEIRS[family].decode(tokens, skip_special_tokens=True)


@given(families, st.lists(texts | SPECIAL, max_size=8).map("".join))
def test_what_people_write_never_becomes_a_special_token(family, text):
    tokenizer = family_tokenizer(family)
    ends = set(tokenizer.special_tokens.values())
    first = tokenizer.encode("")
    tokens = tokenizer.encode(text)
    assert tokens[: len(first)] == first
    assert not ends & set(tokens[len(first) :])
    assert tokenizer.decode(tokens) == as_kept(family, text)


def stream(tokenizer, tokens, **more):
    parts = TextStream(tokenizer, **more)
    return [*map(parts.push, tokens), parts.finish()]


@given(families, st.data())
def test_the_parts_of_a_stream_make_what_decode_makes_of_any_tokens(family, data):
    tokenizer = family_tokenizer(family)
    tokens = data.draw(st.lists(st.integers(0, tokenizer.vocabulary - 1), max_size=20))
    assert "".join(stream(tokenizer, tokens, at_start=True)) == tokenizer.decode(tokens)
    goes_on = tokenizer.decode(tokens, at_start=False)
    assert "".join(stream(tokenizer, tokens)) == goes_on


@given(families, texts)
def test_a_stream_never_shows_half_a_character(family, text):
    tokenizer = family_tokenizer(family)
    parts = stream(tokenizer, tokenizer.encode(text), at_start=True)
    kept = as_kept(family, text)
    assert "".join(parts) == kept
    assert parts[-1] == ""
    assert "".join(parts).count("\ufffd") == kept.count("\ufffd")


@given(families, texts, st.data())
def test_a_later_attempt_goes_on_in_the_middle_of_a_stream(family, text, data):
    tokenizer = family_tokenizer(family)
    tokens = tokenizer.encode(text)
    whole = stream(tokenizer, tokens)
    place = data.draw(st.integers(0, len(tokens)))
    shown = "".join(whole[:place])
    again = TextStream(tokenizer)
    again.resume(tokens[:place], shown)
    rest = [*map(again.push, tokens[place:]), again.finish()]
    assert shown + "".join(rest) == "".join(whole)


@pytest.mark.parametrize("family", FALLBACK)
def test_an_answer_keeps_the_space_that_parts_it_from_its_prompt(family):
    tokenizer = family_tokenizer(family)
    prompt, whole = (tokenizer.encode(text) for text in ("the user", "the user plan"))
    assert whole[: len(prompt)] == prompt
    assert "".join(stream(tokenizer, whole[len(prompt) :])) == " plan"


@pytest.mark.parametrize(
    ("family", "name"),
    [
        ("llama3", "<|eot_id|>"),
        ("qwen2", "<|im_end|>"),
        ("smollm2", "<|im_end|>"),
        ("llama2", "</s>"),
        ("mistral", "</s>"),
    ],
)
def test_the_end_of_an_answer_is_known_without_a_config(family, name):
    tokenizer = family_tokenizer(family)
    assert tokenizer.eos_token == tokenizer.special_tokens[name]


spans = st.lists(st.tuples(texts | SPECIAL, st.booleans()), max_size=8)


@given(families, spans)
@settings(max_examples=300)
def test_foreign_text_never_becomes_a_special_token_and_changes_nothing_else(family, parts):
    tokenizer = family_tokenizer(family)
    text, foreign = "", []
    for part, is_foreign in parts:
        if is_foreign and part:
            foreign.append((len(text), len(text) + len(part)))
        text += part
    tokens = tokenizer.encode_around(text, foreign)
    own = [part for part, is_foreign in joined(parts) if not is_foreign]
    wanted = [token for part in own for token in special_in(tokenizer, part)]
    assert special_among(tokenizer, tokens) == wanted
    if special_in(tokenizer, text) == wanted:
        assert tokens == THEIRS[family](text, add_special_tokens=False)["input_ids"]


def joined(parts):
    """Neighbours of one origin made one."""
    found = []
    for part, is_foreign in parts:
        if found and found[-1][1] == is_foreign:
            part = found.pop()[0] + part
        if part:
            found.append((part, is_foreign))
    return found


def special_in(tokenizer, text):
    return special_among(tokenizer, tokenizer.encode(text, special=True))


def special_among(tokenizer, tokens):
    names = set(tokenizer.special_tokens.values())
    return [token for token in tokens if token in names]
