"""What the engine learns of its speed, by model, and when it tells."""

import pytest

from engines.tensor.rates import MODELS, TELL_EVERY_S, ModelBook, RateBook


def test_news_is_told_once_a_second_and_only_if_it_is_news():
    now = [0.0]
    book = RateBook(lambda: now[0])
    assert book.news() is None
    book.of("m").prefill.add(100, 1.0)
    assert book.news().prefill_tokens_per_s == 100
    book.of("m").prefill.add(300, 1.0)
    assert book.news() is None
    now[0] += TELL_EVERY_S
    assert book.news().prefill_tokens_per_s > 150
    now[0] += TELL_EVERY_S
    assert book.news() is None
    # a model that was not known is news, though its figures are as before
    book.of("other").prefill.add(100, 1.0)
    assert set(book.news().models) == {"m", "other"}


def test_each_model_has_its_own_rates_and_the_pool_those_of_the_last_one():
    book = RateBook(lambda: 0.0)
    book.of("small").step(0, 1000, 1.0)
    book.of("large").step(0, 100, 1.0)
    book.load.add(7, 1.0)
    book.of("never used")
    rates = book.news()
    assert rates.prefill_tokens_per_s == rates.of("large").prefill_tokens_per_s == 100
    assert rates.of("small").prefill_tokens_per_s == 1000
    assert rates.of("unknown").prefill_tokens_per_s == 100
    assert rates.load_bytes_per_s == 7
    assert set(rates.models) == {"small", "large"}


def test_models_that_were_not_used_for_long_are_forgotten():
    book = RateBook(lambda: 0.0)
    for number in range(MODELS):
        book.of(f"m{number}").step(0, 100, 1.0)
    book.of("m0")
    book.of("one more").step(0, 100, 1.0)
    known = book.news().models
    assert len(known) == MODELS
    assert "m0" in known
    assert "m1" not in known


def test_a_step_that_only_decodes_or_only_reads_counts_whole():
    book = ModelBook()
    book.step(4, 0, 0.02)
    book.step(0, 100, 0.5)
    assert book.decode.fit() == pytest.approx((0.02, 0.0))
    assert book.prefill.per_s == pytest.approx(200)


def test_a_step_that_did_both_tells_of_reading_what_each_sequence_leaves():
    book = ModelBook()
    for batch in (1, 3):
        book.step(batch, 0, 0.02 + 0.01 * batch)
    # one pass over the weights served both
    book.step(4, 100, 0.25 + 0.04)
    assert book.prefill.per_s == pytest.approx(400)
    assert book.decode.fit() == pytest.approx((0.02, 0.01))
    # it cannot have taken less than nothing
    book.step(4, 100, 0.01)
    assert book.prefill.per_s == pytest.approx(400)


def test_reading_hidden_behind_the_pass_over_the_weights_tells_nothing_of_its_speed():
    book = ModelBook()
    book.step(0, 1000, 1.0)
    book.step(1, 0, 0.2)
    book.step(1, 64, 0.2)
    assert book.prefill.per_s == pytest.approx(1000)
    # much longer than a decode step: reading is slower than it was known to be
    book.step(1, 190, 0.4)
    assert book.prefill.per_s < 900


def test_parts_that_are_as_long_as_any_beside_others_tell_of_reading():
    """An engine under load read nothing but parts of 40 tokens, and told what it had measured
    while it was idle."""
    book = ModelBook()
    book.step(0, 100, 0.1)
    book.step(0, 40, 0.4)
    assert book.prefill.per_s == pytest.approx(1000)
    book.chunk_tokens = 40
    book.step(0, 40, 0.4)
    assert book.prefill.per_s < 500
    book.step(0, 39, 0.4)
    assert book.prefill.per_s == pytest.approx(137 / 0.497)


def test_a_step_that_did_both_tells_nothing_while_neither_is_known():
    book = ModelBook()
    book.step(4, 100, 0.5)
    assert book.decode.fit() is None
    assert book.prefill.per_s is None


def test_the_certainty_of_a_speed_is_no_news_by_itself():
    now = [0.0]
    book = RateBook(lambda: now[0])
    for spent_s in (1.0, 1.5, 0.5):
        book.of("m").prefill.add(100, spent_s)
    first = book.news()
    assert first.prefill_error
    for _ in range(30):
        book.of("m").prefill.add(100, 1.0)
    now[0] += TELL_EVERY_S
    assert book.news() is None
