"""What runs that ended teach, and what they do not."""

from typing import Any

import pytest

from routing.cluster import Drag, Promise
from routing.ended import Run
from routing.experience import FEWEST, KEYS, Experience
from tests.unit.routing.builders import NOW_MS

POOL = "cuda@a"


def promised(**fields: Any) -> Promise:
    """A prompt of 1 s and ten tokens of 0.1 s; beside prompts of others a step takes 0.3 s."""
    values: dict[str, Any] = {
        "job": "a",
        "pool": POOL,
        "kind": "generate",
        "model": "mini",
        "leased_ms": NOW_MS,
        "ready_ms": NOW_MS,
        "read_ms": NOW_MS + 1000,
        "ends_ms": NOW_MS + 2000,
        "tokens": 10,
        "step_s": 0.1,
        "full_step_s": 0.3,
        "prompt_s": 1.0,
    }
    return Promise(**(values | fields))


def took(first_s: float, ended_s: float, **fields: Any) -> Run:
    values: dict[str, Any] = {
        "job": "a",
        "kind": "generate",
        "model": "mini",
        "label": None,
        "leased_ms": NOW_MS,
        "first_ms": NOW_MS + int(1000 * first_s),
        "ended_ms": NOW_MS + int(1000 * ended_s),
        "tokens": 10,
        "max_tokens": 20,
    }
    return Run(**(values | fields))


def after(run: Run, promise: Promise, times: int = 100) -> Drag:
    experience = Experience()
    experience.learn([(run, promise)] * times)
    experience.publish({}, NOW_MS)
    return experience.drag[POOL]


def test_a_run_as_it_was_predicted_teaches_that_the_rates_hold() -> None:
    assert after(took(1.0, 1.9), promised()) == Drag(1.0, 1.0)


def test_what_others_that_read_their_prompts_explain_is_no_fault_of_the_rates() -> None:
    assert after(took(1.0, 3.6), promised(later_s=1.7)).decode == pytest.approx(1.0)
    # unread before it, and read between its steps: who is urgent reads first
    ahead = promised(read_ms=NOW_MS + 2700, later_s=0.0)
    assert after(took(1.0, 3.6), ahead).decode == pytest.approx(1.0)


def test_what_a_batch_of_all_slots_explains_is_none_either() -> None:
    assert after(took(1.0, 2.8), promised(crowded_step_s=0.2)).decode == pytest.approx(1.0)
    assert after(took(1.0, 19.0), promised(crowded_step_s=0.2)).decode == pytest.approx(
        10, rel=0.05
    )


def test_a_pool_that_decodes_ten_times_slower_is_known_for_it() -> None:
    assert after(took(1.0, 10.0), promised()).decode == pytest.approx(10.0, rel=0.05)
    assert after(took(1.0, 12.0), promised(later_s=2.0)).decode == pytest.approx(10.0, rel=0.05)


def test_a_pool_that_reads_ten_times_slower_is_known_for_it() -> None:
    assert after(took(10.9, 11.8), promised()).read == pytest.approx(10.0, rel=0.05)


def test_what_is_believed_already_is_not_counted_twice() -> None:
    slow = promised(drag=Drag(10.0, 1.0), read_ms=NOW_MS + 10_000, ends_ms=NOW_MS + 11_000)
    assert after(took(10.0, 10.9), slow).read == pytest.approx(10.0, rel=0.1)


def test_a_run_that_does_not_end_tells_before_it_does() -> None:
    experience = Experience()
    experience.publish({POOL: (promised(),)}, NOW_MS + 9_000)
    assert experience.drag == {}, "others may have read their prompts for so long"
    experience.publish({POOL: (promised(),)}, NOW_MS + 50_000)
    assert experience.drag[POOL].decode == pytest.approx(10.0)


def test_one_that_had_to_load_its_model_says_nothing_of_the_rates() -> None:
    experience = Experience()
    experience.learn([(took(30.0, 31.0), promised(ready_ms=NOW_MS + 1))])
    experience.publish({}, NOW_MS)
    assert experience.drag == {}


def test_answers_are_expected_as_long_as_like_ones_were() -> None:
    experience = Experience()
    for tokens in range(FEWEST - 1):
        experience.learn([(took(1.0, 2.0, tokens=tokens + 1), None)])
    experience.publish({}, NOW_MS)
    assert experience.lengths == {}
    experience.learn([(took(1.0, 2.0, tokens=20), None)])
    experience.publish({}, NOW_MS)
    assert experience.lengths == {("generate", "mini", None, 5): 5 / 20}


def test_only_so_many_kinds_of_answers_are_remembered() -> None:
    experience = Experience()
    for label in range(KEYS + 10):
        experience.learn([(took(1.0, 2.0, label=f"l{label}"), None)] * FEWEST)
    experience.publish({}, NOW_MS)
    assert len(experience.lengths) == KEYS


def test_errors_are_told_by_what_a_run_took() -> None:
    experience = Experience()
    assert experience.error() is None
    experience.learn([(took(1.0, 4.0), promised()), (took(1.0, 1.0), promised())])
    error = experience.error()
    assert error
    assert (error.runs, error.p50, error.p95) == (2, 1.0, 1.0)
    assert error.bias == pytest.approx((-0.5 + 1.0) / 2)


def test_errors_are_told_of_each_pool_too() -> None:
    experience = Experience()
    assert experience.errors() == {}
    there = promised(pool="cpu@b")
    experience.learn([(took(1.0, 4.0), promised()), (took(1.0, 1.0), there)])
    errors = experience.errors()
    assert {pool: (one.runs, one.bias) for pool, one in errors.items()} == {
        POOL: (1, -0.5),
        "cpu@b": (1, 1.0),
    }


def test_a_pool_that_left_is_forgotten() -> None:
    experience = Experience()
    experience.learn([(took(10.9, 11.8), promised())] * 50)
    experience.forget(["cpu@a"])
    experience.publish({}, NOW_MS)
    assert experience.drag == {}
