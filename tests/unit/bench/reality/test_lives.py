"""Where the time of a request goes, on either side."""

import pytest

from noidle.jobs import JobClass
from noidle.results import JobResult, JobState, JobTimes
from routing.simulation.request import Fate, Request
from tests.bench.reality.compare import PartFigures, Run
from tests.bench.reality.lives import Life, Side, differences, real_life, simulated_life


def make_life(job: str, **fields: float | str) -> Life:
    values = {"pool": "cpu@one", "arrive_s": 0.0, "held_s": 0.0, "queued_s": 0.0, "read_s": 0.0}
    return Life(**{"job": job, "decode_s": 0.0, **values, **fields})


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
    assert (life.job, life.pool) == (request.id, "cpu@two")


def test_a_side_is_told_from_the_first_arrival_to_the_last_end() -> None:
    side = Side.of(
        [
            make_life("a", arrive_s=2.0, decode_s=9.0, attempts=2),
            make_life("b", arrive_s=5.0, held_s=1.0, decode_s=3.0, pool="cpu@two"),
            make_life("c", arrive_s=6.0, read_s=2.0, decode_s=0.5),
        ]
    )
    assert side.makespan_s == pytest.approx(9.0)
    assert side.finish_p50_s == pytest.approx(4.0)
    assert (side.ttft_p50_s, side.ttft_p99_s) == (1.0, 2.0)
    assert side.jobs == {"cpu@one": 2, "cpu@two": 1}
    assert side.evicted == 1


def test_differences_are_taken_job_by_job() -> None:
    """The medians of both sides are the same here, and yet every job took a second longer."""
    real = [make_life("a", decode_s=1.0), make_life("b", decode_s=2.0), make_life("c", held_s=3.0)]
    simulated = [make_life("c", held_s=2.0), make_life("b", decode_s=1.0), make_life("a")]
    assert differences(real, simulated) == pytest.approx((0.0, 0.0, 0.0, 1.0, 1.0))


def _run(real_s: float) -> Run:
    lives = [make_life("a", decode_s=real_s)], [make_life("a", decode_s=10.0)]
    return Run.of(*lives, late_s=0.0, cpu_share=0.0)


@pytest.mark.parametrize(
    ("real_s", "met"), [(10.9, True), (11.2, False), (9.1, True), (8.9, False)]
)
def test_ten_percent_off_on_either_side_is_a_miss(real_s: float, met: bool) -> None:
    runs = (_run(10.0), _run(real_s), _run(real_s))
    part = PartFigures(name="echo", words=(), pools=(), jobs=1, runs=runs)
    assert [aim.met for aim in part.aims] == [met, met]
