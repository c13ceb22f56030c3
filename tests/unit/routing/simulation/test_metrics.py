"""The figures, reckoned by hand on a few fates."""

import math

import pytest

from noidle.jobs import JobClass
from routing.simulation.metrics import figures, percentile
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Outcome
from tests.unit.routing.simulation.builders import describe_pool, make_described, make_fate

TWO = make_described(describe_pool("cuda@a"), describe_pool("cpu@a"))


def figures_of(*fates, bound_s=2.0):
    outcome = Outcome(fates=list(fates), pools=[SimulatedPool(pool) for pool in TWO.pools])
    return figures("noidle", TWO, outcome, bound_s)


@pytest.mark.parametrize(("share", "value"), [(0.5, 50), (0.99, 99), (1.0, 100), (0.001, 1)])
def test_a_percentile_is_a_value_that_was_seen(share, value) -> None:
    assert percentile(range(1, 101), share) == value
    assert math.isnan(percentile([], share))


def test_times_count_from_arrival_and_by_class() -> None:
    urgent = {"job_class": JobClass.INTERACTIVE}
    found = figures_of(
        make_fate(arrive_s=1.0, start_s=2.0, first_s=2.5, finish_s=4.0, **urgent),
        make_fate(1, first_s=9.0, finish_s=10.0),
    )
    assert found.makespan_s == 10.0
    assert found.classes["interactive"].ttft_s.p50 == 1.5
    assert found.classes["interactive"].finish_s.p99 == 3.0
    assert set(found.classes) == {"interactive", "standard"}
    assert found.goodput.share == 0.5
    assert found.goodput.interactive_share == 1.0
    assert found.goodput.jobs_per_s == pytest.approx(0.1)


def test_fairness_is_one_where_all_labels_fare_alike_and_a_half_where_one_of_two_starves() -> None:
    alike = figures_of(make_fate(label="north"), make_fate(1, label="west"))
    assert alike.fairness_jain == pytest.approx(1.0)
    starved = figures_of(make_fate(label="north"), make_fate(1, label="west", finish_s=1e6))
    assert starved.fairness_jain == pytest.approx(0.5, abs=0.001)


def test_the_prediction_is_off_by_shares_of_the_run() -> None:
    late = make_fate(finish_s=2.0, predicted_s=1.0)
    early = make_fate(1, start_s=10.0, finish_s=20.0, predicted_s=22.5)
    found = figures_of(late, early).prediction_error
    assert found is not None
    assert (found.p50, found.p95) == (0.25, 0.5)
    assert found.bias == pytest.approx(-0.125)
    assert figures_of(make_fate()).prediction_error is None
