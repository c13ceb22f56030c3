"""Quantiles, ratios and aims of the bench."""

import pytest

from tests.bench.figures import Aim, Latency, Spread, differences, ratios, rounds


def test_a_spread_is_the_median_of_its_rounds_and_their_middle_half() -> None:
    found = Spread.of([9.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.low, found.median, found.high) == (2.0, 3.0, 4.0)
    assert found.rounds == (9.0, 1.0, 3.0, 2.0, 4.0)


def test_quantiles_are_those_of_the_samples() -> None:
    latency = Latency.of([float(number) for number in range(101)])
    assert (latency.p50_ms, latency.p95_ms, latency.p99_ms) == (50, 95, 99)
    assert (latency.mean_ms, latency.samples) == (50, 101)


def test_ways_are_compared_round_by_round() -> None:
    """A round that was disturbed as a whole says nothing of the ratio."""
    assert ratios([100.0, 10.0], [200.0, 20.0]).rounds == (0.5, 0.5)
    assert differences([5.0, 50.0], [4.0, 48.0]).rounds == (1.0, 2.0)


@pytest.mark.parametrize(("found", "met"), [([0.95, 0.95, 0.1], True), ([0.94, 0.94, 2.0], False)])
def test_the_median_decides_whether_an_aim_is_met(found: list[float], met: bool) -> None:
    aim = Aim(what="share", found=Spread.of(found), unit="", at_least=0.95)
    assert (aim.met, aim.wanted) == (met, "≥ 0.95")
    assert aim.model_dump()["met"] is met


def test_an_aim_may_be_a_limit() -> None:
    aim = Aim(what="more", found=Spread.of([3.0, 3.0]), unit=" ms", at_most=3)
    assert (aim.met, aim.wanted) == (True, "≤ 3 ms")
    assert not aim.model_copy(update={"found": Spread.of([3.1, 3.1])}).met


def test_a_slow_machine_runs_fewer_rounds_but_never_too_few() -> None:
    times = iter([0.0, 50.0, 101.0])
    assert list(rounds(10, 100, clock=lambda: next(times))) == [0, 1, 2, 3]
    assert list(rounds(2, 0)) == [0, 1]
