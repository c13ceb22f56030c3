"""A slice of a trace, and how it is made to load a cluster."""

import pytest

from noidle.errors import ConfigError
from routing.simulation.described import Described, DescribedPool
from routing.simulation.fitting import released
from routing.simulation.lower_bound import lower_bound_s
from routing.simulation.trace import Row
from tests.bench.reality.slices import Slice, cut, fit_cluster, fit_trace

ROWS = [
    Row(arrive_s=number * 0.5, prompt=100 + number, output=20, blocks=(1, 2))
    for number in range(60)
]
SHAPE = Described(
    context=1024,
    pools=(
        DescribedPool(
            pool="cpu@one",
            reason="test",
            slots=4,
            kv_tokens=4096,
            prefill_tokens_per_s=1000,
            step_s=0.02,
            step_s_per_sequence=0.001,
        ),
    ),
)


def _work_s(slice_: Slice) -> float:
    return lower_bound_s(slice_.described, released(slice_.requests).requests)


def test_a_slice_begins_with_its_first_request() -> None:
    found = cut(ROWS, 9.8, 5)
    assert [row.arrive_s for row in found] == [number * 0.5 for number in range(10)]
    assert found[0].prompt == 120


def test_a_time_in_which_hardly_anything_comes_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"--start 29.5 --seconds 30: 1 requests"):
        cut(ROWS, 29.5, 30)


def test_the_cluster_becomes_as_slow_as_the_load_wants() -> None:
    found = fit_cluster(ROWS, SHAPE, load=0.8, seconds=30)
    assert _work_s(found) == pytest.approx(24, rel=0.01)
    assert [one.arrive_s for one in found.requests] == [row.arrive_s for row in ROWS]
    (pool,), (before,) = found.described.pools, SHAPE.pools
    factor = pool.step_s / before.step_s
    assert pool.step_s_per_sequence == pytest.approx(before.step_s_per_sequence * factor)
    assert pool.prefill_tokens_per_s == pytest.approx(before.prefill_tokens_per_s / factor)


def test_as_many_rows_are_taken_as_a_pool_can_do() -> None:
    found = fit_trace(ROWS, SHAPE, load=0.5, seconds=10)
    assert found.described is SHAPE
    assert _work_s(found) == pytest.approx(5, rel=0.05)
    assert found.requests[-1].arrive_s == pytest.approx(10)
    gaps = {
        round(later.arrive_s - sooner.arrive_s, 6)
        for sooner, later in zip(found.requests, found.requests[1:], strict=False)
    }
    assert len(gaps) == 1


def test_no_prompt_is_taken_to_begin_as_another() -> None:
    assert all(not one.blocks for one in fit_cluster(ROWS, SHAPE, 0.8, 30).requests)
