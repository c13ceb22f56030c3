"""Every scheduler ends every request once, within what the pools hold."""

from collections.abc import Iterator

import pytest

from noidle.errors import ConfigError
from noidle.jobs import JobClass
from routing.simulation.described import Described
from routing.simulation.late import BoundLate, earliest_finish
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Outcome, Replay, Start
from routing.simulation.request import Request, class_of
from routing.simulation.schedulers import POLICIES, Stage, make_scheduler
from tests.unit.routing.simulation.builders import describe_pool, make_described, make_request

FAST = describe_pool("cuda@a", slots=4, step_s=0.02, step_s_per_sequence=0.005, kv_tokens=1000)
SLOW = describe_pool("cpu@a", slots=2, step_s_per_sequence=0.02, kv_tokens=400)
MIXED = make_described(FAST, SLOW, context=500)


def play(name: str, described: Described, requests: list[Request], seed: int = 0) -> Outcome:
    pools = [SimulatedPool(pool) for pool in described.pools]
    stage = Stage(described=described, pools=pools, requests=requests, seed=seed)
    return Replay(requests, pools, make_scheduler(name, stage)).run()


def flood(count: int, every_s: float) -> list[Request]:
    return [
        make_request(
            number,
            arrive_s=number * every_s,
            prompt=1 + number * 37 % 300,
            output=1 + number * 13 % 120,
            job_class=class_of(number),
        )
        for number in range(count)
    ]


@pytest.mark.parametrize("every_s", [0.0, 0.3])
@pytest.mark.parametrize("name", POLICIES)
def test_every_request_ends_once_within_slots_and_cache(name, every_s) -> None:
    """The pool itself asserts that what is started fits."""
    requests = flood(120, every_s)
    outcome = play(name, MIXED, requests)
    assert sorted(fate.request.number for fate in outcome.fates) == list(range(120))
    for fate in outcome.fates:
        assert fate.stints[0].start_s < fate.first_s <= fate.finish_s
        assert all(one.since_s <= one.start_s < one.end_s for one in fate.stints)
        assert fate.request.kv_tokens <= MIXED.pools[fate.pool].kv_tokens


@pytest.mark.parametrize("name", POLICIES)
def test_the_same_seed_gives_the_same_outcome(name) -> None:
    once, again = (play(name, MIXED, flood(60, 0.1), seed=3) for _ in range(2))
    assert once.fates == again.fates


def test_an_unknown_scheduler_is_answered_with_those_there_are() -> None:
    with pytest.raises(ConfigError, match="noidle, static, random"):
        play("best", MIXED, flood(1, 0.0))


ONE_FAST_FOUR_SLOW = make_described(
    describe_pool("cuda@a", prefill_tokens_per_s=1e9),
    describe_pool("cpu@a", slots=4, step_s=0.5, prefill_tokens_per_s=1e9),
)


def test_the_policy_shares_a_hundred_jobs_well_between_a_fast_and_four_slow_slots() -> None:
    """One a second on the fast slot, one in five on each slow one: 100 / 1.8 = 55.6 s."""
    requests = [make_request(number, prompt=1) for number in range(100)]
    outcome = play("noidle", ONE_FAST_FOUR_SLOW, requests)
    assert max(fate.finish_s for fate in outcome.fates) <= 57.0


def test_what_the_policy_predicts_of_a_run_alone_is_what_happens() -> None:
    (fate,) = play("noidle", ONE_FAST_FOUR_SLOW, [make_request(prompt=1)]).fates
    assert fate.predicted_s == pytest.approx(fate.finish_s, abs=0.002)


def test_an_urgent_job_passes_the_flood_that_waits() -> None:
    requests = [
        *(make_request(number, job_class=JobClass.BATCH) for number in range(300)),
        make_request(300, arrive_s=3.0, job_class=JobClass.INTERACTIVE),
    ]
    outcome = play("noidle", make_described(), requests)
    urgent = next(fate for fate in outcome.fates if fate.request.number == 300)
    assert urgent.start_s < 3.0 + 1.2


def test_first_come_first_served_lets_nobody_pass() -> None:
    requests = [
        *(make_request(number, job_class=JobClass.BATCH) for number in range(5)),
        make_request(5, arrive_s=0.5, job_class=JobClass.INTERACTIVE),
    ]
    outcome = play("late-fcfs", make_described(), requests)
    assert [fate.request.number for fate in outcome.fates] == list(range(6))


def test_the_policy_waits_for_the_fast_pool_where_that_ends_sooner() -> None:
    """A rule that takes whatever is free ends the last job on the slow pool, much later."""
    described = make_described(
        describe_pool("cuda@a", step_s=0.01), describe_pool("cpu@a", step_s=1.0)
    )
    requests = [make_request(0), make_request(1, arrive_s=0.01)]
    ours = max(fate.finish_s for fate in play("noidle", described, requests).fates)
    theirs = max(fate.finish_s for fate in play("late-fcfs", described, requests).fates)
    assert ours == pytest.approx(0.38, abs=0.01)
    assert theirs > 10.0


def test_the_policy_looks_again_while_nothing_happens() -> None:
    """A job waits until another's long prompt is read, and goes on then, long before the next run
    ends."""
    rates = {"prefill_tokens_per_s": 100.0, "chunk_tokens": 100, "step_s": 0.01}
    described = make_described(describe_pool("cuda@a", slots=2, **rates))
    requests = [
        make_request(0, prompt=1000, output=1000),
        make_request(1, prompt=1, output=100, arrive_s=0.1),
    ]
    fates = {fate.request.number: fate for fate in play("noidle", described, requests).fates}
    assert 9.0 < fates[1].start_s < 10.1
    assert fates[0].finish_s > 19.0


def test_a_look_begins_behind_the_one_before() -> None:
    """Two pools make a look of 20 µs; a job that comes during one is seen by the next."""
    requests = [make_request(number, prompt=1, arrive_s=number * 5e-6) for number in range(2)]
    first, second = play("noidle", MIXED, requests).fates
    assert first.start_s == 0.0
    assert second.start_s == pytest.approx(2e-5)


def test_a_scheduler_is_asked_only_when_something_changed_for_it() -> None:
    """Once when a job comes and once when it ends, but not when its prompt is read."""

    class Counting(BoundLate):
        asked = 0

        def starts(self, now_s: float) -> Iterator[Start]:
            self.asked += 1
            return super().starts(now_s)

    pools = [SimulatedPool(pool) for pool in make_described().pools]
    scheduler = Counting(pools, earliest_finish)
    Replay(
        [make_request(number, arrive_s=number * 10.0) for number in range(3)], pools, scheduler
    ).run()
    assert scheduler.asked == 6
