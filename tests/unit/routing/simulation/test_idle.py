"""How much of a pool idled, reckoned by hand on runs that began when a test says."""

import pytest

from routing.simulation.described import DescribedPool
from routing.simulation.idle import idle_shares
from routing.simulation.pool import SimulatedPool
from routing.simulation.request import Fate, Request
from tests.unit.routing.simulation.builders import describe_pool, make_request
from tests.unit.routing.simulation.test_pool import run_until

BUSY = describe_pool("cuda@a")
"""One slot, ten tokens a second, 1,000 prompt tokens a second."""


def idle(pools: list[DescribedPool], *starts: tuple[int, float, Request]) -> list[float]:
    """Each request begins in that pool at that time; the starts of a pool are in order."""
    simulated = [SimulatedPool(pool) for pool in pools]
    fates = [Fate(request=one, pool=at, start_s=start_s) for at, start_s, one in starts]
    for fate in fates:
        pool = simulated[fate.pool]
        run_until(pool, fate.start_s)
        pool.advance(fate.start_s)
        pool.start(fate)
    for pool in simulated:
        run_until(pool, 1e9)
    return idle_shares(simulated, fates)


def waits(pools: list[DescribedPool], second: Request | None = None) -> list[float]:
    """Two jobs come at 0. The first takes five seconds, the second waits for it and takes one."""
    first = make_request(prompt=1, output=50)
    return idle(pools, (0, 0.0, first), (0, 5.0, second or make_request(1, prompt=1)))


def test_a_pool_idles_wrongly_while_a_waiting_job_would_have_ended_there_sooner() -> None:
    """The other pool was to blame until 5.0, of 6.0 in all."""
    busy, other = waits([BUSY, describe_pool("cpu@a")])
    assert busy == 0.0
    assert other == pytest.approx(5 / 6, abs=0.01)


def test_a_slow_pool_idles_wrongly_only_while_it_would_have_ended_sooner() -> None:
    """Four seconds there: too late from 2.0 on."""
    _, slow = waits([BUSY, describe_pool("cpu@a", step_s=0.4)])
    assert slow == pytest.approx(2 / 6, abs=0.01)
    assert waits([BUSY, describe_pool("cpu@a", step_s=1.0)]) == [0.0, 0.0]


def test_a_pool_without_cache_for_the_job_is_not_to_blame() -> None:
    assert waits([BUSY, describe_pool("cpu@a", kv_tokens=8)]) == [0.0, 0.0]


def test_a_pool_whose_model_is_not_in_memory_would_have_had_to_load_it() -> None:
    _, cold = waits([BUSY, describe_pool("cpu@a", load_s=3.0)])
    assert cold == pytest.approx(2 / 6, abs=0.01)


def test_free_slots_of_a_pool_are_not_idle_while_it_reads() -> None:
    """The other pool reads until 2.0, and one of its two slots is free until 5.0."""
    reads = make_request(2, prompt=2000, output=1)
    pools = [BUSY, describe_pool("cpu@a", slots=2)]
    first, second = make_request(prompt=1, output=50), make_request(1, prompt=1)
    _, other = idle(pools, (1, 0.0, reads), (0, 0.0, first), (0, 5.0, second))
    # that of the run that has ended is free too, but only one job waits
    assert other == pytest.approx((5.0 - 2.0) / 2 / 6, abs=0.01)


def test_of_several_that_wait_each_would_have_been_read_behind_the_one_before() -> None:
    """Three begin at 2.0 and end at 2.5, 3.0 and 3.5. The other pool reads one a second: it would
    have ended all of them sooner until 0.5, then two of them until 1.5 and one until 2.0."""
    pools = [
        describe_pool("cuda@a", slots=4, prefill_tokens_per_s=2000.0, step_s=0.01),
        describe_pool("cpu@a", slots=4, step_s=0.01),
    ]
    starts = [(0, 2.0, make_request(number, prompt=1000, output=1)) for number in range(3)]
    *_, other = idle(pools, *starts)
    assert other == pytest.approx((0.5 * 3 + 1.0 * 2 + 0.5) / 4 / 3.5, abs=0.01)


def test_a_counted_job_decodes_as_fast_as_the_pool_did_in_fact() -> None:
    """The other pool decodes slowly beside others, so what waits would have ended at 8.0 there."""
    pools = [BUSY, describe_pool("cpu@a", slots=2, step_s_per_sequence=0.35)]
    beside = make_request(2, prompt=1, output=40)
    first, second = make_request(prompt=1, output=50), make_request(1, prompt=1)
    assert idle(pools, (1, 0.0, beside), (0, 0.0, first), (0, 5.0, second)) == [0.0, 0.0]
