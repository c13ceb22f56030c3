"""Who makes room for whom: sentence, what runs, who waits, who is to leave."""

import dataclasses
from typing import Any

import pytest

from noidle.jobs import JobClass
from routing.bounds import PREEMPTIONS_IN_A_ROW
from routing.preemption import (
    RESPONSE_FIRST,
    TRAINING_FIRST,
    Blocked,
    Eviction,
    Option,
    Terms,
    make_room,
    relieve,
)
from routing.running import RunningJob
from tests.unit.routing.builders import NOW_MS, make_job

INTERACTIVE, STANDARD, BATCH, BACKGROUND = JobClass
CPU, GPU = "cpu@a", "gpu@a"


def run(job: str, **fields: Any) -> RunningJob:
    """A batch run in the CPU pool."""
    values: dict[str, Any] = {
        "id": job,
        "kind": "generate",
        "model": "mini",
        "job_class": BATCH,
        "pool": CPU,
        "token": f"token-{job}",
        "claimed_ms": NOW_MS - 1000,
        "kv_tokens": 100,
        "memory_bytes": 0,
        "progress": 10,
        "goal": 100,
    }
    if fields.get("kind") == "train":
        values |= {"job_class": BACKGROUND, "kv_tokens": 0}
    return RunningJob(**(values | fields))


def option(pool: str = CPU, finish_s: float = 1.0, **fields: Any) -> Option:
    """A pool that lacks a slot."""
    return Option(**{"pool": pool, "finish_s": finish_s, "slots": 1, "sharers": (pool,), **fields})


def blocked(*options: Option, finish_s: float = 9.0, **fields: Any) -> Blocked:
    job = make_job(**{"job_class": INTERACTIVE, **fields})
    return Blocked(job=job, start_s=5.0, finish_s=finish_s, options=options or (option(),))


def leave(
    *heads: Blocked, runs: tuple[RunningJob, ...], terms: Terms = RESPONSE_FIRST
) -> list[str]:
    return [one.run.id for one in make_room(heads, runs, terms)]


def test_a_training_pauses_for_interactive_work() -> None:
    assert leave(blocked(), runs=(run("t", kind="train"),)) == ["t"]


def test_nobody_leaves_for_nobody() -> None:
    assert leave(runs=(run("t", kind="train"),)) == []


@pytest.mark.parametrize(
    ("waits", "runs", "leaves"),
    [
        (INTERACTIVE, INTERACTIVE, False),
        (INTERACTIVE, STANDARD, True),
        (INTERACTIVE, BACKGROUND, True),
        (STANDARD, INTERACTIVE, False),
        (STANDARD, STANDARD, False),
        (STANDARD, BATCH, True),
        (BATCH, INTERACTIVE, False),
        (BACKGROUND, STANDARD, False),
        (BACKGROUND, BACKGROUND, False),
    ],
)
def test_nothing_as_high_or_higher_makes_room(
    waits: JobClass, runs: JobClass, leaves: bool
) -> None:
    left = leave(blocked(job_class=waits), runs=(run("r", job_class=runs),))
    assert left == (["r"] if leaves else [])


def test_an_interactive_training_is_not_taken_for_background_work() -> None:
    assert leave(blocked(), runs=(run("t", kind="train", job_class=INTERACTIVE),)) == []


def test_what_made_room_too_often_in_a_row_is_left_alone() -> None:
    spent = run("spent", job_class=BACKGROUND, preemptions=PREEMPTIONS_IN_A_ROW)
    assert leave(blocked(), runs=(spent,)) == []
    once_more = run("other", job_class=STANDARD, preemptions=PREEMPTIONS_IN_A_ROW - 1)
    assert leave(blocked(), runs=(spent, once_more)) == ["other"]


def test_the_lowest_class_leaves_first() -> None:
    runs = (run("s", job_class=STANDARD), run("g", job_class=BACKGROUND), run("b"))
    assert leave(blocked(), runs=runs) == ["g"]


def test_of_one_class_what_has_not_begun_leaves_before_training_and_that_before_text() -> None:
    text = run("text", job_class=BACKGROUND, progress=1)
    training = run("training", kind="train", progress=5000)
    fresh = run("fresh", job_class=BACKGROUND, claimed_ms=None, progress=0)
    assert leave(blocked(), runs=(text, training, fresh)) == ["fresh"]
    assert leave(blocked(), runs=(text, training)) == ["training"]


def test_of_two_texts_the_one_with_less_to_read_again_leaves() -> None:
    assert leave(blocked(), runs=(run("far", progress=90), run("near", progress=3))) == ["near"]


def test_where_training_comes_first_text_makes_room_and_training_does_not() -> None:
    runs = (run("t", kind="train"), run("b"))
    assert leave(blocked(), runs=runs, terms=TRAINING_FIRST) == ["b"]
    assert leave(blocked(), runs=runs[:1], terms=TRAINING_FIRST) == []


def test_room_is_made_where_the_job_ends_first() -> None:
    options = (option(CPU, 3.0), option(GPU, 1.0))
    runs = (run("slow", job_class=BACKGROUND), run("fast", pool=GPU))
    assert leave(blocked(*options), runs=runs) == ["fast"]


def test_room_is_made_in_the_next_best_pool_where_nobody_may_leave_the_best() -> None:
    options = (option(CPU, 3.0), option(GPU, 1.0))
    runs = (run("slow"), run("fast", pool=GPU, job_class=INTERACTIVE))
    assert leave(blocked(*options), runs=runs) == ["slow"]


def test_nobody_leaves_a_pool_where_the_job_would_end_later_than_by_waiting() -> None:
    assert leave(blocked(option(CPU, 8.0), finish_s=8.1), runs=(run("r"),)) == []


def test_nobody_leaves_where_a_slot_would_not_help() -> None:
    nothing_lacks = option(slots=0)
    assert leave(blocked(nothing_lacks), runs=(run("r"),)) == []


def test_a_run_in_another_pool_frees_no_slot_here() -> None:
    assert leave(blocked(option(CPU)), runs=(run("r", pool="cpu@b"),)) == []


def test_as_few_runs_leave_as_free_the_cache_that_lacks() -> None:
    lack = option(slots=0, kv_tokens=150.0)
    runs = (run("a", progress=1), run("b", progress=2), run("c", progress=3))
    assert leave(blocked(lack), runs=runs) == ["a", "b"]


def test_a_small_run_stays_where_a_later_one_frees_enough_alone() -> None:
    lack = option(slots=1, kv_tokens=150.0)
    runs = (run("small", progress=1, kv_tokens=10), run("large", progress=2, kv_tokens=200))
    assert leave(blocked(lack), runs=runs) == ["large"]


def test_nobody_leaves_where_even_all_do_not_free_enough() -> None:
    assert leave(blocked(option(kv_tokens=500.0)), runs=(run("a"), run("b"))) == []


def test_memory_is_freed_by_whoever_shares_the_device() -> None:
    lack = option(CPU, slots=0, memory_bytes=70.0, sharers=(CPU, GPU))
    training = run("t", kind="train", pool=GPU, memory_bytes=80)
    elsewhere = run("e", kind="train", pool="gpu@b", memory_bytes=80)
    heads = [blocked(lack)]
    [one] = make_room(heads, (elsewhere, training), RESPONSE_FIRST)
    assert (one.run.id, one.pool, one.free_memory) == ("t", CPU, True)


def test_a_slot_is_not_freed_by_whoever_shares_the_device() -> None:
    lack = option(CPU, slots=1, sharers=(CPU, GPU))
    assert leave(blocked(lack), runs=(run("t", kind="train", pool=GPU, memory_bytes=80),)) == []


def test_where_only_a_slot_lacks_a_training_keeps_its_memory() -> None:
    [one] = make_room([blocked()], (run("t", kind="train"),), RESPONSE_FIRST)
    assert not one.free_memory


def test_of_several_that_wait_each_gets_a_run_of_its_own() -> None:
    runs = tuple(run(f"r{number}", progress=number) for number in range(2))
    heads = (blocked(), blocked(), blocked())
    found = make_room(heads, runs, RESPONSE_FIRST)
    assert [(one.run.id, one.blocked) for one in found] == [("r0", heads[0]), ("r1", heads[1])]


def test_what_is_leaving_already_is_enough_for_the_first_that_waits() -> None:
    runs = (run("leaves", leaving=True), run("stays"))
    assert leave(blocked(), runs=runs) == ["leaves"]
    assert leave(blocked(), blocked(), runs=runs) == ["leaves", "stays"]


def test_what_is_leaving_helps_whatever_it_is() -> None:
    runs = (run("leaves", leaving=True, preemptions=PREEMPTIONS_IN_A_ROW), run("stays"))
    assert leave(blocked(), runs=runs) == ["leaves"]


def test_asked_again_the_answer_is_the_same_as_long_as_nothing_has_changed() -> None:
    runs = [run(f"r{number}", progress=number) for number in range(4)]
    heads = (blocked(), blocked())
    first = leave(*heads, runs=tuple(runs))
    runs = [dataclasses.replace(one, leaving=one.id in first) for one in runs]
    assert leave(*heads, runs=tuple(runs)) == first


def test_where_memory_runs_out_all_training_stops() -> None:
    runs = (
        run("text", memory_bytes=5),
        run("high", kind="train", job_class=INTERACTIVE, preemptions=PREEMPTIONS_IN_A_ROW),
        run("low", kind="train"),
        run("leaves", kind="train", leaving=True),
    )
    assert [one.id for one in relieve(runs)] == ["high", "low"]


def test_an_eviction_says_who_for_and_where() -> None:
    head = blocked()
    wanted = Eviction(run=run("t", kind="train"), blocked=head, pool=CPU, free_memory=False)
    assert make_room([head], (wanted.run,), RESPONSE_FIRST) == [wanted]
