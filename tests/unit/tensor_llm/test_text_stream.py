import pytest
from hypothesis import given
from hypothesis import strategies as st

from tensor_llm.text_stream import TextStream
from tests.unit.tensor_llm.builders import JAPANESE, make_tokenizer

# few letters, so that stop strings are met often; some of several bytes
texts = st.text(st.sampled_from("ab日👩\n"), max_size=30)
stops = st.lists(st.text(st.sampled_from("ab日"), min_size=1, max_size=4), max_size=3)
any_tokens = st.lists(st.integers(0, make_tokenizer().vocabulary - 1), max_size=20)


def byte_tokens(text: str) -> list[int]:
    """The text spelt one byte a token: the worst a model can do."""
    tokenizer = make_tokenizer()
    spelt = {tokenizer.token_bytes(token): token for token in range(tokenizer.vocabulary)}
    return [spelt[bytes([byte])] for byte in text.encode()]


def play(tokens: list[int], stop: list[str], stream: TextStream | None = None) -> list[str]:
    """What each push gave, then what finish gave."""
    stream = stream or TextStream(make_tokenizer(), stop)
    parts = []
    for token in tokens:
        if stream.stopped:
            break
        parts.append(stream.push(token))
    return [*parts, stream.finish()]


def cut(text: str, stop: list[str]) -> str:
    """The text before the stop string that is complete first, letter by letter."""
    for end in range(len(text) + 1):
        found = [end - len(word) for word in stop if text[:end].endswith(word)]
        if found:
            return text[: min(found)]
    return text


@given(texts, stops, st.booleans())
def test_the_parts_make_the_text_up_to_the_first_stop_string(text, stop, by_bytes):
    tokens = byte_tokens(text) if by_bytes else make_tokenizer().encode(text)
    assert "".join(play(tokens, stop)) == cut(text, stop)


@given(texts)
def test_no_half_character_is_ever_shown(text):
    parts = play(byte_tokens(text), [])
    assert "\ufffd" not in "".join(parts)
    # without stop strings a character is shown as soon as it is whole
    assert parts[-1] == ""


def test_japanese_and_emoji_come_character_by_character():
    parts = [part for part in play(byte_tokens(JAPANESE), []) if part]
    assert parts == list(JAPANESE)


@given(texts, stops)
def test_nothing_shown_is_taken_back_by_a_later_stop_string(text, stop):
    stream = TextStream(make_tokenizer(), stop)
    shown, wanted = "", cut(text, stop)
    for token in byte_tokens(text):
        if not stream.stopped:
            shown += stream.push(token)
            assert wanted.startswith(shown)


def test_of_two_stop_strings_in_one_token_the_first_to_be_complete_counts():
    tokenizer = make_tokenizer()
    token = max(range(tokenizer.vocabulary), key=lambda one: len(tokenizer.token_bytes(one)))
    word = tokenizer.token_bytes(token).decode()
    assert len(word) > 4
    stream = TextStream(tokenizer, [word, word[1:3]])
    assert stream.push(token) == word[:1]
    assert stream.stopped


def test_text_is_held_back_only_while_it_may_become_a_stop_string():
    stream = TextStream(make_tokenizer(), ["END"])
    shown = [stream.push(token) for token in byte_tokens("xENxEND")]
    assert shown == ["x", "", "", "ENx", "", "", ""]
    assert stream.stopped
    assert stream.finish() == ""


def test_what_was_held_back_is_told_at_the_end():
    stream = TextStream(make_tokenizer(), ["END"])
    assert [stream.push(token) for token in byte_tokens("xEN")] == ["x", "", ""]
    assert stream.finish() == "EN"


def test_half_a_character_at_the_very_end_shows_as_such():
    assert "".join(play(byte_tokens("日")[:2], [])) == "\ufffd"


@given(any_tokens)
def test_any_tokens_give_what_decode_gives(tokens):
    assert "".join(play(tokens, [])) == make_tokenizer().decode(tokens)


@given(any_tokens | texts.map(byte_tokens), stops, st.data())
def test_a_later_attempt_goes_on_where_the_former_one_stood(tokens, stop, data):
    whole = play(tokens, stop)
    place = data.draw(st.integers(0, len(tokens)))
    shown = "".join(whole[:-1][:place])
    # the former attempt may have died before its last text was reported
    shown = shown[: data.draw(st.integers(0, len(shown)))]
    stream = TextStream(make_tokenizer(), stop)
    stream.resume(tokens[:place], shown)
    assert shown + "".join(play(tokens[place:], stop, stream)) == "".join(whole)


def test_text_that_does_not_follow_from_the_tokens_is_refused():
    stream = TextStream(make_tokenizer())
    with pytest.raises(ValueError, match="allowed is what the emitted tokens spell"):
        stream.resume(byte_tokens("abc"), "abd")
