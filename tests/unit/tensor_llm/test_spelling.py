"""A tokenizer.json that is malformed or meant to harm is refused."""

import contextlib
import json
import random
import resource

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noidle.errors import CheckpointError
from tensor_llm.tokenizer import Tokenizer
from tests.unit.tensor_llm.families import CODE, FAMILIES, family_json

REGEX = {"type": "Split", "behavior": "Isolated", "invert": False}


def changed(family, **parts):
    return json.dumps(json.loads(family_json(family)) | parts).encode()


def model(family, **parts):
    return json.loads(family_json(family))["model"] | parts


def split(regex):
    return {"pre_tokenizer": REGEX | {"pattern": {"Regex": regex}}}


REFUSED = [
    (changed("qwen2", **split(r"(a+)+$")), "could take for ever"),
    (changed("qwen2", **split(r"(?:a|a)*b")), "could take for ever"),
    (changed("qwen2", **split(r"(a)\1")), "could take for ever"),
    (changed("qwen2", **split(r"\p{L}{1,90000}")), "could take for ever"),
    (changed("qwen2", **split("a" * 5000)), "could take for ever"),
    (changed("qwen2", **split("(" * 100_000)), "no tokenizer"),
    (changed("qwen2", normalizer={"type": "Lowercase"}), "normalizer Lowercase is not known"),
    (
        changed("llama2", normalizer={"type": "Prepend", "prepend": "▁" * 1_000_000}),
        "Prepend writes more than 16",
    ),
    (
        changed(
            "llama2",
            normalizer={"type": "Replace", "pattern": {"String": "a"}, "content": "b" * 10**6},
        ),
        "Replace writes more than 16",
    ),
    (
        changed(
            "llama2",
            post_processor={
                "type": "TemplateProcessing",
                "single": [{"Sequence": {"id": "A", "type_id": 0}}] * 10_000,
                "pair": [],
                "special_tokens": {},
            },
        ),
        "TemplateProcessing repeats a text",
    ),
    (changed("llama2", decoder=None), "its decoder is missing"),
    (changed("llama2", decoder={"type": "Fuse"}), "its decoder is Fuse"),
    (changed("llama2", decoder={"type": "WordPiece", "prefix": "#", "cleanup": True}), "WordPiece"),
    (
        changed("llama2", decoder={"type": "Replace", "pattern": {"String": "a"}, "content": "b"}),
        "decoder Replace turns",
    ),
    (
        changed("qwen2", model={"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}),
        "its model is WordLevel",
    ),
    (changed("qwen2", model=model("qwen2", dropout=0.5)), "drops merges at random"),
    (changed("qwen2", model=model("qwen2", merges=[["a", "zzz"]])), "no tokenizer"),
    (changed("qwen2", model=model("qwen2", vocab={"a": -1})), "no tokenizer"),
    (changed("qwen2", model=model("qwen2", vocab={"a": 2**40})), "no tokenizer"),
    (b"[" * 1_000_000, "no tokenizer"),
    (b'{"a":' * 100_000, "no tokenizer"),
    (b"null", "no tokenizer"),
    (b"\x00" * 1000, "no tokenizer"),
]


def load(tmp_path, content):
    path = tmp_path / "tokenizer.json"
    path.write_bytes(content)
    return Tokenizer.load(path)


@pytest.mark.parametrize(("content", "fault"), REFUSED, ids=[fault for _, fault in REFUSED])
def test_what_is_not_understood_or_could_do_harm_is_refused(tmp_path, content, fault):
    with pytest.raises(CheckpointError, match=fault) as caught:
        load(tmp_path, content)
    assert caught.value.path.endswith("tokenizer.json")
    assert len(str(caught.value)) < 600


def test_text_that_could_become_a_special_token_is_refused(tmp_path):
    """With ignore_merges a word that the vocabulary has as a whole becomes that token."""
    data = json.loads(family_json("llama3"))
    data["added_tokens"].append(
        data["added_tokens"][0] | {"id": data["model"]["vocab"]["Ġthe"], "content": "Ġthe"}
    )
    data["added_tokens"][-1]["content"] = "the"
    data["model"]["vocab"] = {
        {"Ġthe": "the", "the": "Ġthe"}.get(token, token): index
        for token, index in data["model"]["vocab"].items()
    }
    with pytest.raises(CheckpointError, match="text can become its special token 'the'"):
        load(tmp_path, json.dumps(data).encode())


seeds = st.integers(0, 2**32)


@given(st.sampled_from(FAMILIES), seeds)
@settings(max_examples=150, deadline=None)
def test_a_file_with_flipped_bytes_loads_or_is_refused(tmp_path_factory, family, seed):
    rng, content = random.Random(seed), bytearray(family_json(family).encode())
    for _ in range(rng.randint(1, 4)):
        content[rng.randrange(len(content))] ^= 1 << rng.randrange(8)
    if rng.random() < 0.2:
        del content[rng.randrange(len(content)) :]
    check_harmless(tmp_path_factory.mktemp("fuzz"), bytes(content))


def test_a_file_that_adds_a_token_it_has_not_is_refused(tmp_path):
    data = json.loads(family_json("llama3"))
    data["added_tokens"] = []
    with pytest.raises(CheckpointError, match="which is no token of it"):
        load(tmp_path, json.dumps(data).encode())


def paths(value, here=()):
    """The way to every part of JSON data but the entries of a vocabulary."""
    yield here
    if here[-1:] == ("vocab",) or here[-1:] == ("merges",):
        return
    if isinstance(value, dict | list):
        entries = value.items() if isinstance(value, dict) else enumerate(value)
        for key, part in entries:
            yield from paths(part, (*here, key))


ODD = [None, True, -1, 0, 2**31, 2**63, 1e308, "", "▁", "Sequence", "a" * 100_000, [], {}, [[]]]


@given(st.sampled_from(FAMILIES), seeds)
@settings(max_examples=250, deadline=None)
def test_a_file_with_odd_values_loads_or_is_refused(tmp_path_factory, family, seed):
    rng, data = random.Random(seed), json.loads(family_json(family))
    for _ in range(rng.randint(1, 2)):
        *way, last = rng.choice([path for path in paths(data) if path])
        place = data
        for key in way:
            place = place[key]
        if rng.random() < 0.3:
            del place[last]
        else:
            place[last] = rng.choice(ODD)
    check_harmless(tmp_path_factory.mktemp("fuzz"), json.dumps(data).encode())


def check_harmless(folder, content):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with contextlib.suppress(CheckpointError):
        tokenizer = load(folder, content)
        tokens = tokenizer.encode(CODE)
        assert all(0 <= token < tokenizer.vocabulary for token in tokens)
        assert isinstance(tokenizer.decode(tokens), str)
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 200_000
