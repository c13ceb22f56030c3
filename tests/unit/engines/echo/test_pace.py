"""Steps of an echo engine take as long as described, all together."""

import pytest

from engines.echo.pace import LATE_S, Pace


class Time:
    """Sleeps last a little longer than wanted."""

    def __init__(self) -> None:
        self.now_s = 100.0

    def clock(self) -> float:
        return self.now_s

    def sleep(self, seconds: float) -> None:
        assert seconds > 0
        self.now_s += seconds + 0.001


def test_what_is_lost_between_steps_is_caught_up() -> None:
    """Steps of 10 ms took 11 and more, so pools were slower than they were described."""
    time = Time()
    pace = Pace(time.clock, time.sleep)
    for _ in range(1000):
        pace.spend(0.010)
        time.now_s += 0.002
    assert time.now_s - 100 == pytest.approx(10, abs=0.02)


def test_a_rest_is_not_caught_up() -> None:
    time = Time()
    pace = Pace(time.clock, time.sleep)
    time.now_s += 0.5
    pace.begin()
    pace.spend(0.010)
    assert time.now_s == pytest.approx(100.511)


def test_a_long_loss_is_not_caught_up_whole() -> None:
    time = Time()
    pace = Pace(time.clock, time.sleep)
    time.now_s += 60
    for _ in range(200):
        pace.spend(0.010)
    assert time.now_s - 160 == pytest.approx(2 - LATE_S, abs=0.02)
