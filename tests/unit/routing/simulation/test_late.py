"""Rules that bind when there is room choose as they say."""

from routing.simulation.late import accelerator_first, earliest_finish, highest_free_share
from routing.simulation.pool import SimulatedPool
from routing.simulation.request import Fate
from tests.unit.routing.simulation.builders import describe_pool, make_request


def pool(name: str, running: int = 0, **fields) -> SimulatedPool:
    made = SimulatedPool(describe_pool(name, **{"slots": 4} | fields))
    for number in range(running):
        made.start(Fate(request=make_request(number), pool=0, start_s=0.0))
    return made


def test_accelerators_go_first_even_slow_ones() -> None:
    cpu, slow, fast = pool("cpu@a", step_s=0.001), pool("cuda@b", step_s=2.0), pool("cuda@c")
    assert accelerator_first(make_request(), [cpu, slow, fast]) is fast
    assert accelerator_first(make_request(), [cpu, slow]) is slow
    assert accelerator_first(make_request(), [cpu]) is cpu


def test_the_highest_free_share_goes_first() -> None:
    half, more = pool("cuda@a", running=2), pool("cpu@a", running=3, slots=8)
    assert highest_free_share(make_request(), [half, more]) is more


def test_the_earliest_finish_counts_who_runs_there() -> None:
    busy = pool("cuda@a", running=3, step_s=0.01, step_s_per_sequence=0.1)
    idle = pool("cpu@a", step_s=0.2)
    assert earliest_finish(make_request(), [busy, idle]) is idle
    assert earliest_finish(make_request(output=1), [idle, pool("cuda@b", step_s=0.1)]) is not idle
