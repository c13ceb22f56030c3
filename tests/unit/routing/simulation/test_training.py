"""Training behind the answers of one pool, and behind a trace, reckoned by hand."""

import pytest

from noidle.jobs import JobClass
from routing.order import RANKS
from routing.simulation.lower_bound import leftover_tokens
from routing.simulation.metrics import training_figures
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Outcome, Replay
from routing.simulation.request import Fate, Request
from routing.simulation.schedulers import NOIDLE, Stage, make_scheduler
from tests.unit.routing.simulation.builders import describe_pool, make_described, make_request
from tests.unit.routing.simulation.test_pool import run_until

TRAINS = describe_pool(slots=2, step_s=0.01, train_tokens_per_s=1000.0, train_part_s=0.1)
BACKGROUND = RANKS[JobClass.BACKGROUND]


def play(requests: list[Request], **fields) -> Outcome:
    described = make_described(TRAINS.model_copy(update=fields))
    pools = [SimulatedPool(pool) for pool in described.pools]
    stage = Stage(described=described, pools=pools, requests=requests, seed=0, training=True)
    return Replay(requests, pools, make_scheduler(NOIDLE, stage)).run()


def beside(request: Request, until_s: float, rank: int = BACKGROUND) -> tuple[SimulatedPool, Fate]:
    """One request in a pool that trains."""
    pool = SimulatedPool(TRAINS)
    pool.teach(rank)
    pool.advance(request.arrive_s)
    fate = Fate(request=request, pool=0, start_s=request.arrive_s)
    pool.start(fate)
    run_until(pool, until_s)
    pool.advance(until_s)
    return pool, fate


def test_alone_training_gets_all_of_the_time() -> None:
    pool = SimulatedPool(TRAINS)
    pool.teach(BACKGROUND)
    pool.advance(3.0)
    pool.rest(paused=True)
    pool.advance(9.0)
    assert pool.training.tokens == pytest.approx(3000.0)
    assert pool.training.pauses == 1
    assert pool.in_flight == 0


def test_a_prompt_waits_for_the_part_under_way_and_then_gets_most_of_the_time() -> None:
    """It comes 0.03 s into a part of 0.1 s, and takes 0.9 s for nine of its ten parts."""
    pool, fate = beside(make_request(prompt=1000, output=1, arrive_s=0.43), 0.5)
    assert pool.training.tokens == pytest.approx(500.0)
    run_until(pool, 100.0)
    assert fate.first_s == pytest.approx(0.5 + 1.0 / (1 - 1 / 16))
    assert pool.training.tokens == pytest.approx(500.0 + 1000.0 / 15)


def test_while_others_decode_training_gets_half_of_the_time() -> None:
    pool, fate = beside(make_request(prompt=1, output=101), 100.0)
    decoding_s = fate.finish_s - fate.first_s
    assert decoding_s == pytest.approx(100 * 0.01 * 2)
    left_s = 100.0 - fate.finish_s
    read_s = fate.first_s
    assert pool.training.tokens == pytest.approx(
        1000 * (decoding_s / 2 + left_s + read_s), rel=0.01
    )


def test_a_prompt_of_no_higher_class_shares_the_time_equally() -> None:
    job_class = {"job_class": JobClass.BACKGROUND}
    _, fate = beside(make_request(prompt=1000, output=1, **job_class), 100.0)
    assert fate.first_s == pytest.approx(2.0, rel=0.01)


def test_a_run_that_is_evicted_keeps_what_it_made_and_reads_it_again() -> None:
    pool = SimulatedPool(describe_pool(slots=2, step_s=0.01))
    fate = Fate(request=make_request(prompt=100, output=50), pool=0, start_s=0.0)
    pool.start(fate)
    run_until(pool, 0.305)
    pool.advance(0.305)
    # 0.1 s of reading made the first token, 0.205 s of steps 20 more and half of one
    assert pool.evict(0) is fate
    assert (fate.made, pool.in_flight, pool.kv_tokens) == (21, 0, 0)
    assert fate.stints[0].end_s == 0.305
    assert pool.next_s() == float("inf")
    pool.advance(1.0)
    fate.resume(0, 1.0, None)
    pool.start(fate)
    run_until(pool, 100.0)
    # 121 tokens in two parts
    assert fate.finish_s == pytest.approx(1.0 + 0.121 + 28 * 0.01)
    assert fate.first_s == pytest.approx(0.1)


def test_a_prompt_that_is_evicted_lets_the_next_one_be_read() -> None:
    pool = SimulatedPool(describe_pool(slots=2, step_s=0.01))
    fates = [
        Fate(request=make_request(number, prompt=500), pool=0, start_s=0.0) for number in (0, 1)
    ]
    for fate in fates:
        pool.start(fate)
    pool.advance(0.2)
    pool.evict(0)
    run_until(pool, 100.0)
    assert fates[0].made == 0
    assert fates[1].first_s == pytest.approx(0.7)


def test_training_goes_on_behind_a_trace_until_its_last_answer() -> None:
    requests = [make_request(number, arrive_s=10.0 * number, prompt=1) for number in range(3)]
    outcome = play(requests)
    end_s = max(fate.finish_s for fate in outcome.fates)
    # each answer takes twice 0.1 s, half of it for training
    tokens = outcome.pools[0].training.tokens
    assert tokens == pytest.approx(1000 * (end_s - 0.3), rel=0.02)
    assert training_figures(outcome, 2 * tokens).share == 0.5
    # there is no other pool; parts that were under way when a prompt came are all that differs
    assert training_figures(outcome, 1.0).aboard_tokens == pytest.approx(tokens, rel=0.02)


def test_urgent_work_has_training_make_room_and_it_goes_on_later() -> None:
    """The only slot is taken by training when a job comes."""
    urgent = make_request(arrive_s=7.0, job_class=JobClass.INTERACTIVE)
    last = make_request(1, arrive_s=30.0, job_class=JobClass.INTERACTIVE)
    outcome = play([urgent, last], slots=1)
    assert outcome.fates[0].first_s - 7.0 < 1.0
    found = training_figures(outcome, 30_000.0)
    assert found.pauses == 2
    assert found.share > 0.9


def test_training_pauses_while_more_prompts_wait_than_are_soon_read() -> None:
    """Twenty seconds of prompts come at once; beside training they would take more than 21."""
    jam = [
        make_request(number, arrive_s=2.0, prompt=1000, output=1, job_class=JobClass.INTERACTIVE)
        for number in range(20)
    ]
    outcome = play(jam, slots=40)
    assert max(fate.finish_s for fate in outcome.fates) < 2.0 + 20.0 + 0.6
    assert training_figures(outcome, 1.0).pauses == 1
    assert outcome.pools[0].training.tokens < 2000.0 + 500.0


def test_a_batch_job_makes_room_for_an_urgent_one_and_ends_later_with_all_its_tokens() -> None:
    long = make_request(0, output=2000, job_class=JobClass.BATCH)
    urgent = make_request(1, arrive_s=3.0, job_class=JobClass.INTERACTIVE)
    described = make_described(describe_pool(slots=1, step_s=0.01))
    pools = [SimulatedPool(pool) for pool in described.pools]
    stage = Stage(described=described, pools=pools, requests=[long, urgent], seed=0)
    outcome = Replay([long, urgent], pools, make_scheduler(NOIDLE, stage)).run()
    evicted, served = outcome.fates
    assert served.first_s - 3.0 < 0.6
    assert len(evicted.earlier) == 1
    assert 250 < evicted.made < 350
    assert evicted.finish_s == pytest.approx(20.0, rel=0.1)


@pytest.mark.parametrize(("slow", "most"), [(None, 8000.0), (100.0, 8200.0), (2000.0, 20_000.0)])
def test_what_is_left_for_training_is_what_no_answer_needs_in_one_pool_at_a_time(
    slow, most
) -> None:
    """Answers take 2 of 10 s in one pool; the other has no room for them."""
    described = make_described(
        TRAINS, describe_pool("cpu@b", slots=2, step_s=0.01, train_tokens_per_s=slow, kv_tokens=16)
    )
    requests = [make_request(number, prompt=200, output=1) for number in range(10)]
    assert leftover_tokens(described, requests, 10.0) == pytest.approx(most, rel=1e-3)
