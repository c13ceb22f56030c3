import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noidle.errors import CheckpointError
from tensor_llm.tokenizer import END, Tokenizer
from tests.unit.tensor_llm.builders import JAPANESE, TEXT, make_tokenizer

# every character there is, but halves of surrogate pairs: those are no text
characters = st.characters(exclude_categories=("Cs",))


@given(st.text(characters))
def test_any_text_survives(text):
    tokenizer = make_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


@pytest.mark.parametrize(
    "text", [JAPANESE, "👩‍👩‍👧‍👦 🇯🇵", "naïve ﬁ e\u0301", "\r\n\t\x00 \u3000", "a" * 5000]
)
def test_japanese_emoji_and_control_characters_survive(text):
    tokenizer = make_tokenizer()
    assert tokenizer.decode(tokenizer.encode(text)) == text


def test_text_never_becomes_the_end_token():
    tokenizer = make_tokenizer()
    tokens = tokenizer.encode(f"a{END}b")
    assert tokenizer.eos_token not in tokens
    assert tokenizer.decode(tokens) == f"a{END}b"


def test_the_end_token_has_no_text():
    tokenizer = make_tokenizer()
    assert tokenizer.eos_token is not None
    assert tokenizer.token_bytes(tokenizer.eos_token) == b""


def test_frequent_words_become_few_tokens():
    tokenizer = make_tokenizer()
    assert tokenizer.vocabulary == 300
    assert tokenizer.bytes_per_token(TEXT) > 2
    assert len(tokenizer.encode("router")) < len("router")


def test_a_short_text_gives_a_smaller_vocabulary():
    assert 257 <= Tokenizer.train(["abc abc"], 5000).vocabulary < 300


def test_training_twice_gives_the_same_tokenizer():
    assert Tokenizer.train([TEXT], 290).to_json() == Tokenizer.train([TEXT], 290).to_json()


def test_too_small_a_vocabulary_is_refused():
    with pytest.raises(ValueError, match="vocabulary = 256: allowed is 257 or more"):
        Tokenizer.train([TEXT], 256)


def test_ids_beyond_the_vocabulary_have_no_text():
    tokenizer = make_tokenizer()
    assert tokenizer.token_bytes(10**9) == tokenizer.token_bytes(-1) == b""


def test_bytes_that_are_no_character_show_as_such():
    tokenizer = make_tokenizer()
    first = next(t for t in range(tokenizer.vocabulary) if tokenizer.token_bytes(t) == b"\xe3")
    assert tokenizer.decode([first, *tokenizer.encode("a")]) == "\ufffda"


def test_a_saved_tokenizer_is_the_same(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(make_tokenizer().to_json(), encoding="utf-8")
    loaded = Tokenizer.load(path)
    assert loaded.encode(JAPANESE + END) == make_tokenizer().encode(JAPANESE + END)
    assert loaded.eos_token == make_tokenizer().eos_token
    assert loaded.vocabulary == make_tokenizer().vocabulary


def _respelt(spelling: str) -> str:
    data = json.loads(make_tokenizer().to_json())
    data["model"]["vocab"][spelling] = len(data["model"]["vocab"])
    return json.dumps(data)


def _changed(change) -> bytes:
    data = json.loads(make_tokenizer().to_json())
    data["added_tokens"] = []
    change(data)
    return json.dumps(data).encode()


@pytest.mark.parametrize(
    ("content", "fault"),
    [
        (b"", "is no tokenizer that can be used"),
        (b"{}", "is no tokenizer that can be used"),
        (b"\xff\xfe", "is no tokenizer that can be used"),
        (_respelt("日本").encode(), "token '日本' is not spelt in bytes"),
        (json.dumps({"model": {"type": "BPE", "vocab": {}, "merges": []}}).encode(), "decoder is"),
        (_changed(lambda data: data["model"].update(vocab={}, merges=[])), "ids are not dense"),
    ],
)
def test_a_malformed_file_is_refused_by_name(tmp_path, content, fault):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    with pytest.raises(CheckpointError, match=fault) as caught:
        Tokenizer.load(path)
    assert caught.value.path == str(path)


def test_a_missing_file_is_refused_by_name(tmp_path):
    with pytest.raises(CheckpointError, match=r"tokenizer\.json: cannot be read"):
        Tokenizer.load(tmp_path / "tokenizer.json")


def test_absurd_token_ids_are_refused(tmp_path):
    data = json.loads(make_tokenizer().to_json())
    data["model"]["vocab"]["zz"] = 2_000_000_000
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    with pytest.raises(CheckpointError, match="ids are not dense"):
        Tokenizer.load(path)


def test_two_tokens_of_one_id_are_refused(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(_changed(lambda data: data["model"]["vocab"].update(zz=5)))
    with pytest.raises(CheckpointError, match="the same id"):
        Tokenizer.load(path)


def test_a_file_of_absurd_size_is_not_read(tmp_path):
    path = tmp_path / "tokenizer.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    with pytest.raises(CheckpointError, match="1099511627776 bytes; at most"):
        Tokenizer.load(path)
