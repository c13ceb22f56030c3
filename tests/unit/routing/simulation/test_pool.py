"""How fast runs go beside each other, against reckoning by hand and step by step."""

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from noidle.jobs import JobClass
from routing.simulation.described import DescribedPool
from routing.simulation.pool import SimulatedPool
from routing.simulation.request import Fate, Request
from tests.unit.routing.simulation.builders import describe_pool, make_request

BATCHING = describe_pool(slots=4, step_s=0.1, step_s_per_sequence=0.05)


def play(described: DescribedPool, *requests: Request) -> list[Fate]:
    """Each starts when it arrives."""
    pool = SimulatedPool(described)
    fates = [Fate(request=one, pool=0, start_s=one.arrive_s) for one in requests]
    for fate in fates:
        run_until(pool, fate.start_s)
        pool.advance(fate.start_s)
        pool.start(fate)
    run_until(pool, 1e9)
    assert pool.in_flight == pool.kv_tokens == 0
    return fates


def run_until(pool: SimulatedPool, until_s: float) -> None:
    while pool.next_s() <= until_s:
        pool.happen(pool.next_s())


def test_a_run_alone_takes_its_prompt_and_its_steps() -> None:
    (fate,) = play(BATCHING, make_request(prompt=250, output=10))
    # two parts of 100 tokens; the last 50 are read by the step that makes the first token
    assert fate.first_s == pytest.approx(0.2 + 0.15)
    assert fate.finish_s == pytest.approx(0.2 + 10 * 0.15)
    assert fate.finish_s == pytest.approx(BATCHING.work_s(250, 10, 1))


def test_two_in_a_batch_slow_each_other_down_only_while_both_run() -> None:
    short, long = play(
        BATCHING, make_request(prompt=1, output=10), make_request(1, prompt=1, output=30)
    )
    # the second prompt is read a step after the first one
    assert short.finish_s == pytest.approx(0.15 + 9 * 0.2)
    assert long.finish_s == pytest.approx(short.finish_s + 21 * 0.15)


def test_a_prompt_that_is_read_holds_up_those_that_decode() -> None:
    slow = describe_pool(slots=2, step_s=0.02, step_s_per_sequence=0.05)
    first, second = play(
        slow,
        make_request(prompt=1, output=10),
        make_request(1, prompt=1000, output=1, arrive_s=0.07),
    )
    # nine tokens are left, each of its steps reads 100 tokens of the other's prompt
    assert first.finish_s == pytest.approx(0.07 + 9 * (0.1 + 0.05))
    assert second.first_s == pytest.approx(first.finish_s + 0.1 + 0.05)


def test_a_short_part_is_read_within_the_step_of_those_that_decode() -> None:
    first, _ = play(
        BATCHING,
        make_request(prompt=1, output=10),
        make_request(1, prompt=1000, output=1, arrive_s=0.15),
    )
    assert first.finish_s == pytest.approx(10 * 0.15)


def test_a_prefix_in_the_cache_is_not_read_again() -> None:
    described = describe_pool(prefix_cache_tokens=1000)
    whole = make_request(prompt=250, output=1, blocks=(1, 2, 3), block_tokens=100)
    longer = make_request(
        1, prompt=400, output=1, blocks=(1, 2, 4, 5), block_tokens=100, arrive_s=10.0
    )
    _, second = play(described, whole, longer)
    assert second.reused == 200
    assert second.first_s == pytest.approx(10.0 + 0.1 + 0.1)


@pytest.mark.parametrize(("other", "reused"), [(16, 999), (80, 900), (300, 700), (990, 0)])
def test_prompts_stay_in_all_room_that_runs_do_not_need(other, reused) -> None:
    """A run comes between two with the same prompt of 1,000 tokens in a cache for 1,024."""
    described = describe_pool(kv_tokens=1024)
    fields = {"prompt": 1000, "output": 1, "blocks": tuple(range(10)), "block_tokens": 100}
    between = make_request(1, prompt=other - 9, output=9, arrive_s=20.0)
    first, last = make_request(**fields), make_request(2, **fields, arrive_s=40.0)
    assert play(described, first, between, last)[-1].reused == reused


def test_a_small_cache_forgets_the_end_of_a_prefix_first() -> None:
    described = describe_pool(prefix_cache_tokens=200)
    fields = {"prompt": 300, "output": 1, "blocks": (1, 2, 3), "block_tokens": 100}
    _, second = play(described, make_request(**fields), make_request(1, **fields, arrive_s=10.0))
    assert second.reused == 200


def test_even_a_prompt_that_is_all_cached_reads_its_last_token() -> None:
    described = describe_pool(prefix_cache_tokens=1000)
    fields = {"prompt": 200, "output": 1, "blocks": (1, 2), "block_tokens": 100}
    _, second = play(described, make_request(**fields), make_request(1, **fields, arrive_s=10.0))
    assert second.reused == 199


def test_the_first_job_waits_until_the_model_is_in_memory() -> None:
    first, second = play(
        describe_pool(slots=2, load_s=5.0, step_s_per_sequence=0.0),
        make_request(prompt=100, output=10),
        make_request(1, prompt=100, output=10, arrive_s=20.0),
    )
    assert first.finish_s == pytest.approx(5.0 + 1.0)
    assert second.finish_s == pytest.approx(20.0 + 1.0)


def test_a_pool_takes_no_more_than_its_slots_and_cache() -> None:
    pool = SimulatedPool(describe_pool(slots=2, kv_tokens=256))
    pool.start(Fate(request=make_request(prompt=100, output=28), pool=0, start_s=0.0))
    assert pool.fits(128)
    assert not pool.fits(129)
    pool.start(Fate(request=make_request(1, prompt=1, output=1), pool=0, start_s=0.0))
    assert not pool.fits(16)


def stepwise(described: DescribedPool, requests: list[Request]) -> list[float]:
    """The engine's loop, one step after the other; all requests are there at 0, and the prompt with
    the least left is read first."""
    unread = [one.prompt for one in requests]
    left = [one.output for one in requests]
    ends = [0.0] * len(requests)
    now_s = 0.0
    while any(left):
        reading = min(
            (i for i in range(len(unread)) if unread[i]), key=unread.__getitem__, default=None
        )
        part = 0
        if reading is not None:
            part = min(unread[reading], described.chunk_tokens)
            unread[reading] -= part
        decoding = [i for i in range(len(requests)) if left[i] and not unread[i]]
        part_s = part / described.prefill_tokens_per_s
        step_s = max(part_s, described.step_s) if decoding else part_s
        now_s += step_s + described.step_s_per_sequence * len(decoding)
        for i in decoding:
            left[i] -= 1
            if not left[i]:
                ends[i] = now_s
    return ends


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.tuples(st.integers(1, 1200), st.integers(1, 40)), min_size=1, max_size=6),
    st.floats(0.0, 0.1),
    st.floats(0.01, 0.5),
)
def test_counting_in_steps_is_as_good_as_stepping(sizes, per_sequence, step_s) -> None:
    described = describe_pool(slots=8, step_s=step_s, step_s_per_sequence=per_sequence)
    requests = [
        make_request(number, prompt=prompt, output=output)
        for number, (prompt, output) in enumerate(sizes)
    ]
    pool = SimulatedPool(described, passed_by_steps=math.inf)
    fates = [Fate(request=one, pool=0, start_s=0.0) for one in requests]
    for fate in fates:
        pool.start(fate)
    run_until(pool, 1e9)
    assert [fate.finish_s for fate in fates] == pytest.approx(stepwise(described, requests))


def test_a_long_prompt_is_not_passed_by_for_ever() -> None:
    pool = SimulatedPool(describe_pool(slots=64, step_s_per_sequence=0.0))
    long = Fate(request=make_request(prompt=4000, output=1), pool=0, start_s=0.0)
    pool.start(long)
    for number in range(1, 60):
        at_s = 0.3 * number
        run_until(pool, at_s)
        pool.advance(at_s)
        request = make_request(number, prompt=300, output=1)
        pool.start(Fate(request=request, pool=0, start_s=at_s))
    run_until(pool, 1e9)
    # a prompt of 300 comes whenever one has been read: half of the time is the long one's
    assert 6.0 < long.first_s < 10.0


def test_prompts_are_read_by_class_and_the_shortest_first() -> None:
    pool = SimulatedPool(describe_pool(slots=8, step_s_per_sequence=0.0))
    sizes = [(1000, JobClass.BATCH), (600, JobClass.INTERACTIVE), (300, JobClass.INTERACTIVE)]
    fates = []
    for number, (prompt, job_class) in enumerate(sizes):
        request = make_request(number, prompt=prompt, output=1, job_class=job_class)
        fates.append(Fate(request=request, pool=0, start_s=0.0))
        pool.start(fates[-1])
    run_until(pool, 0.35)
    urgent = make_request(3, prompt=100, output=1, job_class=JobClass.INTERACTIVE)
    late = Fate(request=urgent, pool=0, start_s=0.35)
    pool.advance(0.35)
    pool.start(late)
    run_until(pool, 1e9)
    assert [fate.first_s for fate in (fates[2], late, *fates[1::-1])] == sorted(
        fate.first_s for fate in (*fates, late)
    )
    # what was read before others came first need not be read again
    assert max(fate.finish_s for fate in fates) == pytest.approx(2.0, abs=0.1)
