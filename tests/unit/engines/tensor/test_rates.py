"""Speeds learnt from measurements."""

import math

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


def test_a_step_that_did_both_tells_of_reading_what_each_sequence_leaves():
    book = RateBook(lambda: 0.0)
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
    book = RateBook(lambda: 0.0)
    book.step(0, 1000, 1.0)
    book.step(1, 0, 0.2)
    book.step(1, 64, 0.2)
    assert book.prefill.per_s == pytest.approx(1000)
    # much longer than a decode step: reading is slower than it was known to be
    book.step(1, 190, 0.4)
    assert book.prefill.per_s < 900


def test_a_step_that_did_both_tells_nothing_while_neither_is_known():
    book = RateBook(lambda: 0.0)
    book.step(4, 100, 0.5)
    assert book.decode.fit() is None
    assert book.prefill.per_s is None


def test_how_sure_a_speed_is_follows_from_how_far_measurements_scatter():
    sure, unsure = Speed(), Speed()
    assert sure.error is None
    for place in range(40):
        sure.add(100, 1.0)
        unsure.add(100, 0.5 if place % 2 else 1.5)
    assert sure.error == pytest.approx(0.0, abs=1e-6)
    # half of the mean apart, over some thirty that count
    assert unsure.error == pytest.approx(0.5 / math.sqrt(23), rel=0.3)


def test_how_sure_a_line_is_follows_from_how_far_steps_lie_from_it():
    sure, unsure = Line(), Line()
    for place in range(40):
        batch = 1 + place % 4
        sure.add(batch, 0.01 + 0.002 * batch)
        unsure.add(batch, (0.01 + 0.002 * batch) * (0.5 if place % 8 < 4 else 1.5))
    assert sure.error == pytest.approx(0.0, abs=1e-6)
    assert unsure.error == pytest.approx(0.5 / math.sqrt(23), rel=0.3)
    one = Line()
    one.add(1, 0.01)
    one.add(1, 0.01)
    assert one.error is None


def test_the_certainty_of_a_speed_is_no_news_by_itself():
    now = [0.0]
    book = RateBook(lambda: now[0])
    for spent_s in (1.0, 1.5, 0.5):
        book.prefill.add(100, spent_s)
    first = book.news()
    assert first.prefill_error
    for _ in range(30):
        book.prefill.add(100, 1.0)
    now[0] += TELL_EVERY_S
    assert book.news() is None
