"""How long jobs wait in fact, for others overtake them."""

from noidle.snapshot import Rates
from routing.cluster import PUNCTUAL
from routing.decided import Decided
from routing.policy import decide
from routing.waits import REMEMBERED, Waits
from tests.unit.routing.builders import NOW_MS, make_cluster, make_job, make_pool, make_promise

FAST = make_pool("cuda@a", slots=1, rates=Rates(prefill_tokens_per_s=1e6, step_s=0.001))
SLOW = make_pool("cpu@a", slots=1, rates=Rates(prefill_tokens_per_s=1e6, step_s=0.02))


def look(*names: str, full: bool = True, waits: tuple[float, ...] = PUNCTUAL) -> Decided:
    """One step of the fast pool is as good as twenty of the slow one; its slot is free in 0.5 s."""
    running = (make_promise("cuda@a", 0.5),) if full else ()
    jobs = [make_job(id=name, max_tokens=100) for name in names]
    return decide(jobs, make_cluster(FAST, SLOW, running=running, waits=waits), NOW_MS)


def test_a_class_that_is_overtaken_again_and_again_takes_the_slow_pool() -> None:
    waits = Waits()
    assert look("a")[0].pool is FAST
    for second in range(30):
        waits.note(look("a", waits=waits.factors).looked, NOW_MS + 1000 * second)
    placement = look("a", waits=waits.factors)[0]
    assert placement.pool is SLOW
    assert placement.grant
    # other classes are not concerned
    assert [factor > 1 for factor in waits.factors] == [False, True, False, False]


def test_who_starts_in_time_is_punctual_and_makes_up_for_others() -> None:
    waits = Waits()
    waits.note(look("a").looked, NOW_MS)
    waits.note(look("a", full=False).looked, NOW_MS + 500)
    assert waits.factors == PUNCTUAL
    waits.note(look("b").looked, NOW_MS)
    waits.note(look("b").looked, NOW_MS + 60_000)
    late = waits.factors[1]
    assert late > 10
    for number in range(100):
        at_ms = NOW_MS + 61_000 + 1000 * number
        waits.note(look(f"c{number}").looked, at_ms)
        waits.note(look(f"c{number}", full=False).looked, at_ms + 500)
    assert waits.factors[1] < 0.2 * late


def test_only_the_head_tells_for_the_others_wait_behind_it() -> None:
    waits = Waits()
    waits.note(look("a", "b").looked, NOW_MS)
    waits.note(look("b").looked, NOW_MS + 60_000)
    # of this one nothing was expected before
    assert waits.factors == PUNCTUAL


def test_nobody_is_remembered_for_ever() -> None:
    waits = Waits()
    for number in range(REMEMBERED + 9):
        waits.note(look(f"job-{number}").looked, NOW_MS)
    assert len(waits._expected) == REMEMBERED
