"""What the router remembers of where prompts went, and what follows from it."""

import pytest

from routing.board import HeldJob
from routing.explanation import decision_of
from routing.placement import Cause
from routing.policy import decide
from routing.warm import Warm
from tests.unit.routing.builders import NOW_MS, make_cluster, make_job, make_pool, make_promise

COLD = make_pool("cpu@a", prefix_cache_tokens=1000)
KEEPS = make_pool("cpu@b", prefix_cache_tokens=1000)
STORY = ((512, "s1"), (1024, "s2"), (2048, "s3"))


def told(*beginnings: tuple[int, str], **fields: object) -> HeldJob:
    return make_job(beginnings=beginnings, prompt_bytes=4000, **fields)


def test_a_job_goes_where_the_beginning_of_its_prompt_was_read() -> None:
    cluster = make_cluster(COLD, KEEPS, warm={"s1": {"cpu@b"}, "s2": {"cpu@b"}})
    (placement,) = decide([told(*STORY)], cluster, NOW_MS)
    assert placement.pool == KEEPS
    assert placement.forecast
    # 256 of 1001 tokens need not be read
    assert placement.forecast[0] == pytest.approx(1.0 + 0.745)
    assert "256 more are in its cache" in decision_of(placement, NOW_MS).verdicts[0].reason


def test_it_waits_there_only_as_long_as_that_saves() -> None:
    warm = {"s3": {"cpu@b"}}
    for ends_s, wanted in ((0.4, "cpu@b"), (0.6, "cpu@a")):
        cluster = make_cluster(COLD, KEEPS, warm=warm, running=(make_promise("cpu@b", ends_s),))
        (placement,) = decide([told(*STORY)], cluster, NOW_MS)
        assert placement.pool
        assert placement.pool.pool == wanted


def test_a_pool_that_keeps_no_prompts_saves_nothing() -> None:
    cluster = make_cluster(COLD, make_pool("cpu@b"), warm={"s3": {"cpu@b"}})
    (placement,) = decide([told(*STORY)], cluster, NOW_MS)
    assert placement.pool == COLD
    assert placement.forecast
    assert placement.forecast[2] is Cause.FREE


def test_what_was_used_longest_ago_is_forgotten_first_the_longer_before_the_shorter() -> None:
    warm = Warm()
    warm.note(told(*STORY), "cpu@a", 3000)
    warm.note(told((512, "t1"), (1024, "t2")), "cpu@a", 3000)
    assert set(warm.where) == {"s1", "s2", "t1", "t2"}
    warm.note(told(*STORY), "cpu@b", 3000)
    assert warm.where["s3"] == {"cpu@b"}


def test_a_pool_that_left_holds_nothing() -> None:
    warm = Warm()
    warm.note(told(*STORY), "cpu@a", 3000)
    warm.forget({"cpu@b"})
    assert warm.where == {}


def test_memory_is_bounded_by_what_the_pools_keep() -> None:
    warm = Warm()
    for number in range(1000):
        warm.note(told((512, f"a{number}"), (1024, f"b{number}")), "cpu@a", 10_000)
    assert len(warm.where) <= 20
