"""Speeds and sizes in words and numbers."""

from ops.run.figures import AnswerFigures, LoadFigures

LOAD = LoadFigures(
    load_ms=1500.0, temperature="warm", before_bytes=200 << 20, after_bytes=900 << 20
)
ANSWER = AnswerFigures(
    prompt_tokens=100,
    prefix_tokens=60,
    tokens=11,
    tokenize_ms=1.0,
    prefill_ms=200.0,
    decode_ms=500.0,
    stream_ms=2.0,
)


def test_only_what_was_read_counts_as_prefill_and_what_follows_the_first_token_as_decode():
    assert ANSWER.prefill_tokens_per_s == 200
    assert ANSWER.decode_tokens_per_s == 20
    assert ANSWER.words() == (
        "prefill 40 tokens at 200.0 tok/s, 60 more from the prefix cache; "
        "decode 11 tokens at 20.0 tok/s"
    )
    assert ANSWER.fields()["decode_tokens_per_s"] == 20


def test_a_speed_that_was_not_measured_is_absent():
    one = AnswerFigures(
        prompt_tokens=4,
        prefix_tokens=0,
        tokens=1,
        tokenize_ms=0.0,
        prefill_ms=0.0,
        decode_ms=0.0,
        stream_ms=0.0,
    )
    assert one.words() == "prefill 4 tokens; decode 1 tokens"
    assert not {name for name in one.fields() if name.endswith("per_s")}


def test_a_load_is_told_with_the_memory_it_took():
    words = "load 1.50 s (warm), working set 200 MiB before, 900 MiB after"
    assert LOAD.words() == words
