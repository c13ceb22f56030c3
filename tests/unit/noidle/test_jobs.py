"""What a job may say, and how a refusal reads."""

import contextlib
import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from noidle.errors import InvalidJob, shorten
from noidle.jobs import (
    MAX_TEXT_BYTES,
    EngineName,
    Generate,
    JobClass,
    ModelShape,
    Score,
    Train,
    parse_job,
    to_wire,
)

GENERATE = {"kind": "generate", "model": "m", "prompt": "x"}
TRAIN = {"kind": "train", "model": "m", "text": "x"}
NAME = "1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"
UTF8 = "text that can be written as UTF-8, without half of a surrogate pair"

REFUSED = [
    ({"prompt": ""}, "prompt = '': allowed is text of at least 1 character"),
    ({"prompt": None}, "prompt is missing: allowed is exactly one of prompt and messages"),
    ({"prompt": 3}, "prompt = 3: allowed is text of at least 1 character"),
    ({"prompt": b"abc"}, "prompt = b'abc': allowed is text of at least 1 character"),
    ({"prompt": b"\xff"}, "prompt = b'\\xff': allowed is text of at least 1 character"),
    ({"prompt": "a\ud800"}, f"prompt = 'a\\ud800': allowed is {UTF8}"),
    ({"logprobs": 1}, "logprobs = 1: allowed is true or false"),
    ({"max_tokens": 0}, "max_tokens = 0: allowed is a whole number from 1 to 1000000"),
    ({"max_tokens": -1}, "max_tokens = -1: allowed is a whole number from 1 to 1000000"),
    ({"max_tokens": True}, "max_tokens = True: allowed is a whole number from 1 to 1000000"),
    ({"max_tokens": "12"}, "max_tokens = '12': allowed is a whole number from 1 to 1000000"),
    ({"max_tokens": 1.5}, "max_tokens = 1.5: allowed is a whole number from 1 to 1000000"),
    (
        {"max_tokens": 10**5000},
        "max_tokens = a number of thousands of digits: allowed is a whole number from 1 to 1000000",
    ),
    ({"seed": -1}, "seed = -1: allowed is a whole number from 0 below 9223372036854775808"),
    (
        {"seed": 2**63},
        "seed = 9223372036854775808: allowed is a whole number from 0 below 9223372036854775808",
    ),
    ({"temperature": math.nan}, "temperature = nan: allowed is a number from 0 to 10"),
    ({"temperature": math.inf}, "temperature = inf: allowed is a number from 0 to 10"),
    ({"temperature": True}, "temperature = True: allowed is a number from 0 to 10"),
    ({"temperature": "0.3"}, "temperature = '0.3': allowed is a number from 0 to 10"),
    ({"temperature": -0.5}, "temperature = -0.5: allowed is a number from 0 to 10"),
    ({"top_p": 0}, "top_p = 0: allowed is a number above 0 to 1"),
    ({"expires_s": -math.inf}, "expires_s = -inf: allowed is a number above 0 to 2592000"),
    ({"keep_s": 0}, "keep_s = 0: allowed is a whole number from 1 to 604800"),
    (
        {"class": "fast"},
        "class = 'fast': allowed is interactive or standard or batch or background",
    ),
    ({"engine": "tpu"}, "engine = 'tpu': allowed is cpu or hybrid or cuda or gpu"),
    ({"model": "../m"}, f"model = '../m': allowed is {NAME}"),
    ({"model": "m\n"}, f"model = 'm\\n': allowed is {NAME}"),
    ({"label": ""}, f"label = '': allowed is {NAME}"),
    (
        {"id": "a b"},
        "id = 'a b': allowed is 1 to 128 letters, digits, '.', '_', ':' or '-', "
        "the first a letter or digit",
    ),
    (
        {"stop": "x"},
        "stop = 'x': allowed is a list of at most 16 entries, each text of 1 to 200 characters",
    ),
    ({"stop": ["a", ""]}, "stop.1 = '': allowed is text of 1 to 200 characters"),
    ({"max_token": 3}, "max_token = 3: no such field; did you mean 'max_tokens'?"),
    ({"maxtokens": 3}, "maxtokens = 3: no such field; did you mean 'max_tokens'?"),
    ({"clas": "batch"}, "clas = 'batch': no such field; did you mean 'class'?"),
    ({1: 2}, "job = 1: allowed is fields named by text"),
]

ASKED = {"role": "user", "content": "x"}
ROLES = "system or user or assistant or tool"
TURN = "an object with the fields content, role"
MESSAGES_REFUSED = [
    ([], f"messages = []: allowed is a list of 1 to 1000 entries, each {TURN}"),
    ("hello", f"messages = 'hello': allowed is a list of 1 to 1000 entries, each {TURN}"),
    (ASKED, None),
    ([3], f"messages.0 = 3: allowed is {TURN}"),
    ([{"role": "user"}], "messages.0.content is missing: allowed is text"),
    ([{"content": "x"}], f"messages.0.role is missing: allowed is {ROLES}"),
    (
        [ASKED, {"role": "robot", "content": "x"}],
        f"messages.1.role = 'robot': allowed is {ROLES}",
    ),
    ([{"role": "user", "content": 3}], "messages.0.content = 3: allowed is text"),
    ([{"role": "user", "content": None}], "messages.0.content = None: allowed is text"),
    (
        [{"role": "user", "content": [{"type": "text", "text": "x"}]}],
        "messages.0.content = [{'type': 'text', 'text': 'x'}]: allowed is text",
    ),
    (
        [{"role": "user", "content": ""}],
        "messages.0.content = '': allowed is text of at least 1 character, as the user's",
    ),
    (
        [{"role": "tool", "content": "a\ud800"}],
        f"messages.0.content = 'a\\ud800': allowed is {UTF8}",
    ),
    (
        [{**ASKED, "contents": "x"}],
        "messages.0.contents = 'x': no such field; did you mean 'content'?",
    ),
]

TRAIN_REFUSED = [
    ({"text": None}, "text is missing: allowed is exactly one of text and path"),
    ({"path": "a"}, "path = 'a': allowed is exactly one of text and path; text is given too"),
    (
        {"text": None, "path": "a\0"},
        "path = 'a\\x00': allowed is a file name without zero bytes",
    ),
    ({"batch": 16, "accumulate": 3}, "batch = 16: allowed is a multiple of accumulate (3)"),
    ({"held_out": math.nan}, "held_out = nan: allowed is a number above 0 below 1"),
    ({"clip_norm": math.inf}, "clip_norm = inf: allowed is a number above 0 to 1000000"),
    ({"warmup_steps": -1}, "warmup_steps = -1: allowed is a whole number from 0 to 100000000"),
    ({"shape": {"layer": 3}}, "shape.layer = 3: no such field; did you mean 'layers'?"),
    ({"shape": {"heads": True}}, "shape.heads = True: allowed is a whole number from 1 to 512"),
    (
        {"shape": {"heads": 4, "kv_heads": 3}},
        "shape.heads = 4: allowed is a multiple of kv_heads (3)",
    ),
    (
        {"shape": {"hidden": 100}},
        "shape.hidden = 100: allowed is a multiple of twice the heads (4)",
    ),
    (
        {"shape": {"hidden": 65_536}},
        "shape.hidden = 65536: allowed is at most 1024 times the heads (4)",
    ),
    ({"shape": {"tied_head": 1}}, "shape.tied_head = 1: allowed is true or false"),
    (
        {"shape": 3},
        "shape = 3: allowed is an object with the fields context, heads, hidden, kv_heads, "
        "layers, mlp, tied_head, vocabulary",
    ),
]


def refusal(data: object) -> InvalidJob:
    with pytest.raises(InvalidJob) as caught:
        parse_job(data)
    return caught.value


@pytest.mark.parametrize(("change", "message"), REFUSED, ids=shorten)
def test_a_wrong_field_is_refused_by_name_value_and_what_is_allowed(change, message):
    error = refusal({**GENERATE, **change})
    assert str(error) == message
    assert error.field
    assert error.allowed


@pytest.mark.parametrize(("messages", "message"), MESSAGES_REFUSED, ids=shorten)
def test_wrong_messages_are_refused_naming_the_turn(messages, message):
    error = refusal({"kind": "generate", "model": "m", "messages": messages})
    assert error.field.partition(".")[0] == "messages"
    assert message is None or str(error) == message


def test_a_job_with_both_prompt_and_messages_is_refused():
    error = refusal({**GENERATE, "messages": [ASKED]})
    assert error.field == "messages"
    assert error.allowed == "exactly one of prompt and messages; prompt is given too"


def test_a_thousand_messages_pass_and_one_more_is_refused():
    job = parse_job({"kind": "generate", "model": "m", "messages": [ASKED] * 1000})
    assert isinstance(job, Generate)
    assert len(job.messages) == 1000
    error = refusal({"kind": "generate", "model": "m", "messages": [ASKED] * 1001})
    assert error.field == "messages"
    assert len(str(error)) < 300


def test_the_limit_of_messages_counts_the_bytes_of_all():
    half = {"role": "user", "content": "あ" * (MAX_TEXT_BYTES // 6)}
    fits = [half, half]
    assert parse_job({"kind": "generate", "model": "m", "messages": fits})
    error = refusal({"kind": "generate", "model": "m", "messages": [*fits, half]})
    assert error.field == "messages"
    assert "together, these have 1572858" in str(error)
    assert len(str(error)) < 300


def test_turns_that_need_not_say_anything_may_be_empty():
    empty = [{"role": role, "content": ""} for role in ("system", "assistant", "tool")]
    job = parse_job({"kind": "generate", "model": "m", "messages": [*empty, ASKED]})
    assert parse_job(json.loads(json.dumps(to_wire(job)))) == job
    assert to_wire(job)["messages"][-1] == ASKED


@pytest.mark.parametrize(("change", "message"), TRAIN_REFUSED, ids=shorten)
def test_a_wrong_field_of_training_is_refused_the_same_way(change, message):
    assert str(refusal({**TRAIN, **change})) == message


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (None, "job = None: allowed is an object such as {'kind': 'generate', …}"),
        ([], "job = []: allowed is an object such as {'kind': 'generate', …}"),
        ({}, "kind is missing: allowed is generate or score or train"),
        ({"kind": ["a"]}, "kind = ['a']: allowed is generate or score or train"),
        ({"kind": "generat"}, "kind = 'generat': allowed is generate or score or train"),
        ({"kind": "score", "text": "x"}, f"model is missing: allowed is {NAME}"),
    ],
)
def test_what_is_no_job_at_all_is_refused(data, message):
    assert str(refusal(data)) == message


@pytest.mark.parametrize("kind", ["generate", "score", "train"])
def test_ten_megabytes_of_text_are_refused_and_not_repeated(kind):
    field = "prompt" if kind == "generate" else "text"
    error = refusal({"kind": kind, "model": "m", field: "x" * 10_000_000})
    assert error.field == field
    assert error.allowed == "at most 1048576 bytes of UTF-8, this has 10000000"
    assert "(10000000 characters)" in str(error)
    assert len(str(error)) < 300


def test_the_limit_of_a_text_counts_bytes_not_characters():
    fits = "あ" * (MAX_TEXT_BYTES // 3)
    assert parse_job({**GENERATE, "prompt": fits}).model_dump()["prompt"] == fits
    assert "this has 1048578" in str(refusal({**GENERATE, "prompt": fits + "あ"}))


def test_a_misspelt_field_is_named_rather_than_the_one_then_missing():
    assert refusal({"kind": "generate", "model": "m", "promt": "x"}).field == "promt"


def test_a_field_of_another_kind_is_answered_with_the_known_ones():
    error = refusal({**GENERATE, "steps": 3})
    assert str(error).startswith("steps = 3: no such field; known are class, deadline_s, engine, ")


def test_an_error_can_always_be_written_as_utf_8_on_one_line():
    for name in ("\ud800", "a\nb", "\x1b[31m", "x" * 1_000_000):
        message = str(refusal({**GENERATE, name: "\udfff\n"}))
        assert message.encode()
        assert message.isprintable()
        assert len(message) < 400


def test_a_job_built_by_its_class_is_refused_in_the_same_words():
    with pytest.raises(InvalidJob, match="allowed is a whole number from 1 to 1000000"):
        Generate(model="m", prompt="x", max_tokens=0)


def test_defaults_are_those_of_a_program_that_waits():
    job = parse_job(GENERATE)
    assert isinstance(job, Generate)
    assert job.job_class is JobClass.STANDARD
    assert job.seed is None
    assert isinstance(parse_job(TRAIN), Train)
    assert parse_job(TRAIN).job_class is JobClass.BACKGROUND
    assert parse_job(GENERATE).id != job.id


def test_a_job_survives_the_way_over_the_wire():
    job = Train(
        model="m",
        path="books",
        shape=ModelShape(layers=2, mlp=64),
        engine=EngineName.CPU,
        seed=2**63 - 1,
        expires_s=2.5,
        job_class=JobClass.BATCH,
    )
    assert parse_job(json.loads(json.dumps(to_wire(job)))) == job
    assert to_wire(job)["class"] == "batch"


@given(st.text(min_size=1, max_size=200))
def test_any_valid_text_arrives_unchanged(text):
    job = parse_job(json.loads(json.dumps({"kind": "score", "model": "m", "text": text})))
    assert isinstance(job, Score)
    assert job.text == text


json_data = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)
fields = st.sampled_from(
    [*sorted(Train.model_fields), "class", "prompt", "messages", "logprobs", "top_p", "stop"]
)


@given(
    st.sampled_from([GENERATE, TRAIN, {"kind": "score", "model": "m", "text": "x"}]),
    st.dictionaries(fields | st.text(max_size=8), json_data, max_size=4),
)
def test_whatever_json_arrives_is_a_job_or_a_refusal(base, changes):
    with contextlib.suppress(InvalidJob):
        job = parse_job({**base, **changes})
        assert parse_job(to_wire(job)) == job
