"""Speeds learnt from measurements."""

import pytest

from engines.tensor.rates import TELL_EVERY_S, Line, RateBook, Speed


def test_heavier_measurements_count_more():
    speed = Speed()
    speed.add(1000, 1.0)
    speed.add(1, 1.0)
    assert 450 < speed.per_s < 550


def test_nothing_measured_is_absent():
    assert Speed().per_s is None
    assert Line().fit() is None


def test_a_line_is_found_from_steps_of_several_sizes():
    line = Line()
    for batch in (1, 2, 4, 8) * 5:
        line.add(batch, 0.010 + 0.002 * batch)
    assert line.fit() == pytest.approx((0.010, 0.002), rel=1e-6)


def test_one_size_alone_gives_a_constant():
    line = Line()
    for _ in range(10):
        line.add(4, 0.02)
    assert line.fit() == pytest.approx((0.02, 0.0))


def test_steps_that_get_faster_with_size_give_no_negative_slope():
    line = Line()
    line.add(1, 0.02)
    line.add(8, 0.01)
    constant, slope = line.fit()
    assert slope == 0
    assert constant > 0


def test_steps_proportional_to_size_give_no_negative_constant():
    line = Line()
    line.add(1, 0.001)
    line.add(8, 0.020)
    constant, slope = line.fit()
    assert constant == 0
    assert slope > 0


def test_old_speed_fades():
    speed = Speed()
    speed.add(100, 1.0)
    for _ in range(300):
        speed.add(10, 1.0)
    assert speed.per_s == pytest.approx(10, rel=0.05)


def test_news_is_told_once_a_second_and_only_if_it_is_news():
    now = [0.0]
    book = RateBook(lambda: now[0])
    assert book.news() is None
    book.prefill.add(100, 1.0)
    assert book.news().prefill_tokens_per_s == 100
    book.prefill.add(300, 1.0)
    assert book.news() is None
    now[0] += TELL_EVERY_S
    assert book.news().prefill_tokens_per_s > 150
    now[0] += TELL_EVERY_S
    assert book.news() is None


def test_a_step_that_only_decodes_or_only_reads_counts_whole():
    book = RateBook(lambda: 0.0)
    book.step(4, 0, 0.02)
    book.step(0, 100, 0.5)
    assert book.decode.fit() == pytest.approx((0.02, 0.0))
    assert book.prefill.per_s == pytest.approx(200)


def test_a_step_that_did_both_tells_of_reading_what_decoding_leaves():
    book = RateBook(lambda: 0.0)
    book.step(4, 0, 0.02)
    book.step(4, 100, 0.02 + 0.25)
    assert book.prefill.per_s == pytest.approx(400)
    assert book.decode.fit() == pytest.approx((0.02, 0.0))
    # it cannot have taken less than nothing
    book.step(4, 100, 0.01)
    assert book.prefill.per_s == pytest.approx(400)


def test_a_step_that_did_both_tells_nothing_while_neither_is_known():
    book = RateBook(lambda: 0.0)
    book.step(4, 100, 0.5)
    assert book.decode.fit() is None
    assert book.prefill.per_s is None
