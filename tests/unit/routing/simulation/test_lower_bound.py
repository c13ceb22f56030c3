"""The lower bound is never above what can be reached, and close to it."""

import itertools
from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from routing.simulation.described import Described
from routing.simulation.lower_bound import lower_bound_s
from routing.simulation.request import Request
from routing.simulation.schedulers import POLICIES
from tests.unit.routing.simulation.builders import describe_pool, make_described, make_request
from tests.unit.routing.simulation.test_replay import MIXED, flood, play

ROUNDING = 1e-9
ONE_SLOT_EACH = make_described(
    describe_pool("cuda@a", step_s=0.02, prefill_tokens_per_s=10_000.0),
    describe_pool("cpu@a"),
    describe_pool("cpu@b", prefill_tokens_per_s=300.0, step_s=0.05),
)


def best_s(described: Described, requests: Sequence[Request]) -> float:
    """By brute force, for pools of one slot: on each, first come first served is best."""
    best = float("inf")
    for places in itertools.product(range(len(described.pools)), repeat=len(requests)):
        ends = [0.0] * len(described.pools)
        for one, i in zip(requests, places, strict=True):
            work_s = described.pools[i].work_s(one.prompt, one.output, 1)
            ends[i] = max(ends[i], one.arrive_s) + work_s
        best = min(best, max(ends))
    return best


sizes = st.tuples(st.floats(0.0, 3.0), st.integers(1, 900), st.integers(1, 60))


@settings(deadline=None, max_examples=25)
@given(st.lists(sizes, min_size=1, max_size=6), st.integers(1, 3), st.integers(1, 3))
def test_nothing_ends_before_the_bound(rows, buckets, directions) -> None:
    requests = [
        make_request(number, arrive_s=arrive_s, prompt=prompt, output=output)
        for number, (arrive_s, prompt, output) in enumerate(sorted(rows))
    ]
    bound_s = lower_bound_s(ONE_SLOT_EACH, requests, buckets=buckets, directions=directions)
    assert 0 < bound_s <= best_s(ONE_SLOT_EACH, requests)


def test_alike_jobs_reach_the_bound() -> None:
    """Five a second on the one, one a second on the other: twelve jobs in two seconds."""
    described = make_described(
        describe_pool("cuda@a", step_s=0.02, prefill_tokens_per_s=1e9),
        describe_pool("cpu@a", prefill_tokens_per_s=1e9),
    )
    requests = [make_request(number, prompt=1) for number in range(12)]
    assert lower_bound_s(described, requests) == pytest.approx(2.0, rel=1e-3)
    assert best_s(described, requests) == pytest.approx(2.0, rel=1e-3)


def test_work_goes_where_it_is_cheap() -> None:
    """One pool reads fast and writes slowly, the other the reverse: 1 s each, not 1.8."""
    described = make_described(
        describe_pool("cuda@a", prefill_tokens_per_s=1e9, step_s=1.0),
        describe_pool("cpu@a", prefill_tokens_per_s=100.0, step_s=1e-9),
    )
    requests = [make_request(prompt=1000, output=1), make_request(1, prompt=100, output=900)]
    assert lower_bound_s(described, requests) == pytest.approx(1.0, rel=1e-3)


def test_late_work_cannot_be_done_early() -> None:
    requests = [make_request(number, arrive_s=100.0) for number in range(10)]
    assert lower_bound_s(make_described(), requests) == pytest.approx(110.0, rel=1e-3)


def test_early_work_that_is_not_done_in_time_is_left_for_later() -> None:
    """10 s of work at 0 and as much at 5 s."""
    requests = [make_request(number, arrive_s=5.0 * (number > 9)) for number in range(20)]
    assert lower_bound_s(make_described(), requests) == pytest.approx(20.0, rel=1e-3)


def test_the_bound_counts_a_full_batch() -> None:
    described = make_described(describe_pool(slots=10, step_s=0.1, prefill_tokens_per_s=1e9))
    requests = [make_request(number, prompt=1) for number in range(100)]
    assert lower_bound_s(described, requests) == pytest.approx(10.0, rel=1e-3)


def test_a_job_alone_takes_as_long_as_on_the_fastest_pool() -> None:
    described = make_described(describe_pool(slots=10))
    assert lower_bound_s(described, [make_request()]) == pytest.approx(1.0)


def test_reading_goes_beside_decoding_but_not_beside_other_reading() -> None:
    """2 s of prompts, and 1.5 s of steps in full batches; each token of a sequence costs both."""
    described = make_described(describe_pool(slots=10, step_s=0.1, step_s_per_sequence=0.01))
    requests = [make_request(number, prompt=200, output=15) for number in range(10)]
    both = 10 * 15 * 0.01
    assert lower_bound_s(described, requests) == pytest.approx(2.0 + both, rel=1e-3)
    longer = [make_request(number, prompt=100, output=15) for number in range(10)]
    assert lower_bound_s(described, longer) == pytest.approx(1.5 + both, rel=1e-3)


def test_pools_that_are_alike_share_the_work() -> None:
    requests = [make_request(number) for number in range(40)]
    named = [describe_pool(f"cpu@{number}") for number in range(8)]
    assert lower_bound_s(make_described(*named), requests) == pytest.approx(5.0, rel=1e-3)


@pytest.mark.parametrize("cache", [0, 10_000])
def test_a_prefix_that_all_share_is_read_once_where_pools_keep_it(cache) -> None:
    described = make_described(describe_pool(prefix_cache_tokens=cache, step_s=0.001))
    requests = [
        make_request(number, prompt=301, output=1, blocks=(1, 2, 3, 10 + number), block_tokens=100)
        for number in range(10)
    ]
    read_s = 0.31 if cache else 3.01
    assert lower_bound_s(described, requests) == pytest.approx(read_s, rel=1e-3)
    makespan_s = max(fate.finish_s for fate in play("noidle", described, requests).fates)
    assert makespan_s >= read_s * (1 - ROUNDING)


@pytest.mark.parametrize("every_s", [0.0, 0.5])
@pytest.mark.parametrize("name", POLICIES)
def test_no_scheduler_beats_the_bound(name, every_s) -> None:
    requests = flood(80, every_s)
    makespan_s = max(fate.finish_s for fate in play(name, MIXED, requests).fates)
    assert makespan_s >= lower_bound_s(MIXED, requests)


pools = st.builds(
    describe_pool,
    st.sampled_from(["cpu@a", "cuda@a"]),
    slots=st.integers(1, 6),
    kv_tokens=st.sampled_from([1024, 4096]),
    step_s=st.floats(0.001, 0.2),
    step_s_per_sequence=st.floats(0.0, 0.05),
    prefill_tokens_per_s=st.floats(100.0, 5000.0),
    prefix_cache_tokens=st.sampled_from([None, 0, 500]),
)
rows = st.tuples(st.floats(0.0, 5.0), st.integers(1, 900), st.integers(1, 60), st.integers(0, 2))


@settings(deadline=None, max_examples=25)
@given(
    st.lists(pools, min_size=1, max_size=3),
    st.lists(rows, min_size=1, max_size=12),
    st.sampled_from(sorted(POLICIES)),
)
def test_no_scheduler_beats_the_bound_on_any_cluster(described, rows, name) -> None:
    named = [
        pool.model_copy(update={"pool": f"{pool.engine}@{number}"})
        for number, pool in enumerate(described)
    ]
    requests = [
        make_request(
            number,
            arrive_s=arrive_s,
            prompt=prompt,
            output=output,
            blocks=tuple(range(100 * family, 100 * family + prompt // 64)),
            block_tokens=64,
        )
        for number, (arrive_s, prompt, output, family) in enumerate(sorted(rows))
    ]
    cluster = make_described(*named)
    makespan_s = max(fate.finish_s for fate in play(name, cluster, requests).fates)
    bound_s = lower_bound_s(cluster, requests, buckets=3, directions=3)
    assert makespan_s >= bound_s * (1 - ROUNDING)
