"""Speeds fitted to measurements."""

import math

import pytest

from engines.tensor.fits import MEMORY, SCATTER, STEP_MEMORY, Line, Speed


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


def test_a_long_time_at_one_size_leaves_what_is_known_of_the_slope():
    line = Line()
    for batch in (1, 8):
        line.add(batch, 0.010 + 0.002 * batch)
    for _ in range(2000):
        line.add(8, 0.036)
    # others became slower, what is known of one alone stands
    assert line.fit() == pytest.approx((0.012 - 0.024 / 7, 0.024 / 7), rel=1e-6)
    for _ in range(400):
        line.add(1, 0.015)
    assert sum(line.fit()) == pytest.approx(0.015, rel=0.02)


def test_a_measurement_of_less_weight_gives_way_to_others():
    speed, line = Speed(), Line()
    speed.add(100, 1.0, 0.25)
    speed.add(300, 1.0)
    assert speed.per_s == pytest.approx(325 / (1 + 0.25), rel=0.03)
    line.add(1, 0.1, 0.25)
    line.add(1, 0.2)
    assert sum(line.fit()) == pytest.approx(0.18, rel=0.01)


def test_how_sure_a_speed_is_follows_from_how_many_measurements_scatter_how_far():
    sure, unsure = Speed(), Speed()
    assert sure.error is None
    for place in range(200):
        sure.add(100, 1.0)
        unsure.add(100, 0.5 if place % 2 else 1.5)
    weight = 1 / (1 - MEMORY)
    assert sure.error == pytest.approx(SCATTER / weight, rel=0.01)
    assert unsure.error == pytest.approx(math.sqrt(0.2 / weight), rel=0.1)


def test_how_sure_a_line_is_follows_from_how_far_steps_lie_from_it():
    sure, unsure = Line(), Line()
    for place in range(200):
        batch = 1 + place % 4
        sure.add(batch, 0.01 + 0.002 * batch)
        unsure.add(batch, (0.01 + 0.002 * batch) * (0.5 if place % 8 < 4 else 1.5))
    assert unsure.error > 3 * sure.error
    assert unsure.error == pytest.approx(math.sqrt(0.2 * (1 - STEP_MEMORY)), rel=0.6)


@pytest.mark.parametrize(("weight", "wanted"), [(1.0, SCATTER), (0.5, 2 * SCATTER)])
def test_a_single_measurement_is_hardly_sure(weight, wanted):
    speed, line = Speed(), Line()
    speed.add(100, 1.0, weight)
    line.add(2, 0.01, weight)
    assert speed.error == pytest.approx(wanted)
    assert line.error == pytest.approx(wanted)
