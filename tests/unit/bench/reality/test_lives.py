"""Where the time of a request goes, on either side."""

from typing import Any

import pytest

from noidle.jobs import JobClass
from noidle.results import JobResult, JobState, JobTimes
from routing.simulation.request import Fate, Request
from tests.bench.reality.compare import PartFigures, Run
from tests.bench.reality.lives import Life, Side, differences, real_life, simulated_life


def make_life(job: str, *stages_s: float, arrive_s: float = 0.0, **fields: Any) -> Life:
    """`stages_s`: held, queued, read and decoded so long."""
    held_s, queued_s, read_s, decode_s = stages_s
    ttft_s = held_s + queued_s + read_s
    return Life(
        **{"job": job, "pool": "cpu@one", "arrive_s": arrive_s, **fields},
        held_s=held_s,
        queued_s=queued_s,
        ttft_s=ttft_s,
        finish_s=ttft_s + decode_s,
    )


def test_a_real_life_is_told_in_stages_that_add_up() -> None:
    times = JobTimes(held_ms=500, queued_ms=20, ttft_ms=700, total_ms=2000)
    result = JobResult(id="a", state=JobState.DONE, pool="cpu@one", attempt=2, times=times)
    life = real_life(result, sent_s=3.0)
    assert life.stages_s == pytest.approx((0.5, 0.02, 0.18, 1.3))
    assert (life.ttft_s, life.finish_s) == (pytest.approx(0.7), pytest.approx(2.0))
    assert (life.arrive_s, life.pool, life.attempts) == (3.0, "cpu@one", 2)


def test_a_simulated_life_has_the_same_stages() -> None:
    request = Request(
        number=1, arrive_s=1.0, prompt=9, output=9, job_class=JobClass.BATCH, label="east"
    )
    fate = Fate(request=request, pool=1, start_s=1.5, first_s=1.7, finish_s=3.0)
    life = simulated_life(fate, ["cpu@one", "cpu@two"])
    assert life.stages_s == pytest.approx((0.5, 0.0, 0.2, 1.3))
    assert (life.job, life.pool, life.attempts) == (request.id, "cpu@two", 1)


def test_who_is_evicted_waits_twice_on_either_side() -> None:
    request = Request(
        number=1, arrive_s=1.0, prompt=9, output=9, job_class=JobClass.BATCH, label="east"
    )
    fate = Fate(request=request, pool=0, start_s=1.5, first_s=1.7, finish_s=6.0)
    fate.earlier.append(fate.stint(2.0, 0))
    fate.resume(1, 4.0, None)
    simulated = simulated_life(fate, ["cpu@one", "cpu@two"])
    times = JobTimes(held_ms=2500, queued_ms=0, ttft_ms=700, total_ms=5000)
    real = real_life(
        JobResult(id=request.id, state=JobState.DONE, pool="cpu@two", attempt=2, times=times), 1.0
    )
    assert simulated == real
    assert real.stages_s == pytest.approx((2.5, 0.0, 0.0, 2.5))


def test_a_side_is_told_from_the_first_arrival_to_the_last_end() -> None:
    side = Side.of(
        [
            make_life("a", 0, 0, 0, 9, arrive_s=2.0, attempts=2),
            make_life("b", 1, 0, 0, 3, arrive_s=5.0, pool="cpu@two"),
            make_life("c", 0, 0, 2, 0.5, arrive_s=6.0),
        ]
    )
    assert side.makespan_s == pytest.approx(9.0)
    assert side.finish_p50_s == pytest.approx(4.0)
    assert (side.ttft_p50_s, side.ttft_p99_s) == (1.0, 2.0)
    assert side.jobs == {"cpu@one": 2, "cpu@two": 1}
    assert side.evicted == 1


def test_differences_are_taken_job_by_job() -> None:
    """The medians of both sides are the same here, and yet every job took a second longer."""
    real = [make_life("a", 0, 0, 0, 1), make_life("b", 0, 0, 0, 2), make_life("c", 3, 0, 0, 0)]
    simulated = [
        make_life("c", 2, 0, 0, 0),
        make_life("b", 0, 0, 0, 1),
        make_life("a", 0, 0, 0, 0),
    ]
    assert differences(real, simulated) == pytest.approx((0.0, 0.0, 0.0, 1.0, 1.0))


def _run(real_s: float) -> Run:
    lives = [make_life("a", 0, 0, 0, real_s)], [make_life("a", 0, 0, 0, 10)]
    return Run.of(*lives, late_s=0.0, cpu_share=0.0)


@pytest.mark.parametrize(
    ("real_s", "met"), [(10.9, True), (11.2, False), (9.1, True), (8.9, False)]
)
def test_ten_percent_off_on_either_side_is_a_miss(real_s: float, met: bool) -> None:
    runs = (_run(10.0), _run(real_s), _run(real_s))
    part = PartFigures(name="echo", words=(), pools=(), jobs=1, runs=runs)
    assert [aim.met for aim in part.aims] == [met, met]
