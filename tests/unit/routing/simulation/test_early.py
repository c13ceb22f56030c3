"""Rules that bind at arrival choose as they say."""

import random

import pytest

from routing.simulation.early import (
    Choice,
    EarliestFinish,
    Random,
    RoundRobin,
    StaticByLength,
    TwoChoices,
    able,
    shortest_queue,
)
from routing.simulation.pool import SimulatedPool
from tests.unit.routing.simulation.builders import describe_pool, make_request

FAST = SimulatedPool(describe_pool("cuda@a", slots=2, step_s=0.01))
SLOW = SimulatedPool(describe_pool("cpu@a", kv_tokens=256))
POOLS = [FAST, SLOW]


def choice(**fields) -> Choice:
    values = {"request": make_request(), "able": [0, 1], "jobs": [0, 0], "now_s": 0.0}
    return Choice(**values | fields)


def test_round_robin_goes_in_turn_and_past_those_that_cannot() -> None:
    rule = RoundRobin()
    assert [rule(choice(able=pools)) for pools in ([0, 1, 2], [0, 2], [0, 1, 2])] == [0, 2, 0]


def test_the_shortest_queue_counts_jobs_not_their_size() -> None:
    assert shortest_queue(choice(jobs=[3, 2])) == 1


def test_two_choices_takes_the_emptier_of_two() -> None:
    rule = TwoChoices(random.Random(0))
    assert {rule(choice(able=[0, 1], jobs=[5, 1])) for _ in range(20)} == {1}
    assert rule(choice(able=[0], jobs=[5, 1])) == 0


def test_random_reaches_every_pool() -> None:
    rule = Random(random.Random(0))
    assert {rule(choice()) for _ in range(50)} == {0, 1}


def test_static_sends_the_short_to_the_cpu_and_the_long_to_the_accelerator() -> None:
    requests = [make_request(number, prompt=10 * (number + 1)) for number in range(100)]
    rule = StaticByLength(POOLS, requests)
    sides = [rule(choice(request=one)) for one in requests]
    assert sides == sorted(sides, reverse=True)
    assert 0 < sides.count(1) < 100
    # the CPU has about a ninth of the speed
    work = [one.prompt + one.output for one in requests]
    on_cpu = sum(size for size, side in zip(work, sides, strict=True) if side == 1)
    speeds = [1 / pool.described.share_s(505, 10) for pool in POOLS]
    assert on_cpu / sum(work) == pytest.approx(speeds[1] / sum(speeds), abs=0.05)


def test_earliest_finish_counts_what_it_bound_before() -> None:
    rule = EarliestFinish(POOLS)
    # 0.2 s a job on two fast slots, 1.1 s on the slow one: it pays from the eleventh on
    chosen = [rule(choice()) for _ in range(12)]
    assert chosen[:10] == [0] * 10
    assert 1 in chosen[10:]


def test_only_pools_that_could_hold_a_request_are_to_choose_from() -> None:
    assert able(POOLS, make_request(prompt=240, output=16)) == [0, 1]
    assert able(POOLS, make_request(prompt=241, output=16)) == [0]
