"""The pools that a decision tells in groups: none is missing, and each is where it belongs."""

import random
from collections import Counter

import numpy as np

from noidle.jobs import EngineName, JobClass
from noidle.results import PoolGroup
from noidle.snapshot import PoolSnapshot, PoolState, Pressure
from routing.board import HeldJob, PoolLoad
from routing.causes import WORDS
from routing.cluster import Cluster
from routing.explanation import VERDICTS_KEPT, decision_of
from routing.forecast import at
from routing.groups import GROUPS, groups_of
from routing.placement import Placement
from routing.policy import decide
from tests.unit.routing.builders import (
    MODEL,
    NOW_MS,
    make_cluster,
    make_job,
    make_pool,
    make_promise,
)

HEAVY = MODEL.model_copy(update={"weight_bytes": 7 * 2**30})
READY = {"tokens_per_s": 9.0}
STATES: dict[str, dict[str, object]] = {
    "all slots are taken": {},
    "a slot is free": {},
    "what is free there is kept for more urgent work": {"slots": 4},
    "prompts sent there before it are still to be read": {"slots": 2},
    "too little KV cache is free": {"slots": 2, "kv_tokens_total": 64},
    "is draining": {"state": PoolState.DRAINING},
    "is under hard memory pressure": {"pressure": Pressure.HARD},
    "the job wants engine cpu, this is gpu": {},
    "its engine does not generate; it can score": {"kinds": ("score",)},
    "was not heard of lately; that counts as full": {"published_ms": NOW_MS - 9000},
    "too little memory for the weights of mini": {"loaded": (), "memory_free_bytes": 2**30},
    "its whole KV cache is too small for 32 tokens": {"kv_tokens_total": 16},
}
"""By what is to be said of them."""


def pools_of(rng: random.Random, counts: dict[str, int]) -> tuple[list[str], list[PoolSnapshot]]:
    words = [one for one, count in counts.items() for _ in range(count)]
    rng.shuffle(words)
    made = []
    for number, one in enumerate(words):
        engine = "gpu" if "this is gpu" in one else "cpu"
        made.append(make_pool(f"{engine}.{number}@a", device=f"d{number}", **READY, **STATES[one]))
    return words, made


def full_cluster(words: list[str], pools: list[PoolSnapshot]) -> Cluster:
    running, loads = [], {}
    for word, pool in zip(words, pools, strict=True):
        if word.startswith("all slots"):
            running.append(make_promise(pool.pool, 2.0))
        if word.startswith("prompts"):
            running.append(make_promise(pool.pool, 9.0, read_ms=NOW_MS + 5000))
        if word.startswith("too little KV"):
            loads[pool.pool] = PoolLoad(in_flight=1, kv_tokens=64)
        if word.startswith("what is free"):
            loads[pool.pool] = PoolLoad(in_flight=3)
    loads |= {one.pool: PoolLoad(in_flight=1) for one in running}
    made = make_cluster(*pools, running=tuple(running), models={"mini": HEAVY})
    return Cluster(
        pools=made.pools, loads=loads, models=made.models, promises=made.promises, drag={}
    )


def asked(cluster: Cluster) -> Placement:
    job = make_job(
        engine=EngineName.CPU, job_class=JobClass.BACKGROUND, prompt_bytes=40, max_tokens=10
    )
    return decide([job], cluster, NOW_MS)[0]


def test_every_pool_is_counted_once_and_under_what_keeps_the_job_from_it() -> None:
    counts = {word: 3 + place for place, word in enumerate(STATES)}
    words, pools = pools_of(random.Random(5), counts)
    placement = asked(full_cluster(words, pools))
    groups = groups_of(placement, ())
    assert {one.reason: one.count for one in groups} == counts
    told = {name: one.reason for one in groups for name in one.pools}
    known = dict(zip([pool.pool for pool in pools], words, strict=True))
    assert told == {name: known[name] for name in told}
    assert [one.count for one in groups] == sorted(counts.values(), reverse=True)


def test_verdicts_and_groups_together_tell_of_every_pool() -> None:
    for seed in range(20):
        rng = random.Random(seed)
        words, pools = pools_of(rng, {word: rng.randrange(4) for word in STATES})
        decision = decision_of(asked(full_cluster(words, pools)), NOW_MS)
        named = [one.pool for one in decision.verdicts]
        named += [name for group in decision.rest for name in group.pools]
        assert sorted(named) == sorted(pool.pool for pool in pools)
        assert len(decision.verdicts) == min(VERDICTS_KEPT, len(pools))


def test_groups_say_when_their_pools_will_be_free_and_the_job_done() -> None:
    running = tuple(make_promise(f"cpu.{i}@a", 1.0 + i) for i in range(3))
    pools = [make_pool(f"cpu.{i}@a") for i in range(3)]
    (group,) = groups_of(asked(make_cluster(*pools, running=running)), ())
    assert (group.start_from_s, group.start_to_s) == (1.0, 3.0)
    # ten tokens of prompt at 1,000 a second, and ten steps of 0.1 s
    assert (group.finish_from_s, group.finish_to_s) == (2.011, 4.011)


def test_they_stand_for_the_moment_of_the_decision_and_not_for_the_looks_end() -> None:
    pools = [make_pool(f"cpu.{i}@a") for i in range(30)]
    jobs: list[HeldJob] = [make_job() for _ in range(30)]
    first, *_, last = decide(jobs, make_cluster(*pools), NOW_MS)
    assert [(one.reason, one.count) for one in groups_of(first, ())] == [("a slot is free", 30)]
    assert {one.reason: one.count for one in groups_of(last, ())} == {
        "a slot is free": 1,
        "all slots are taken": 29,
    }


def test_what_they_say_is_what_a_close_look_says() -> None:
    words, pools = pools_of(random.Random(1), dict.fromkeys(STATES, 4))
    cluster = full_cluster(words, pools)
    placement = asked(cluster)
    view, need, rows = placement.view, placement.need, placement.rows
    assert view is not None
    assert need is not None
    assert rows is not None
    close = Counter(
        WORDS[at(placement.job, view, i, view.look.was(i, placement.moment), need)[2]]
        for i in map(int, np.flatnonzero(np.isfinite(rows)))
    )
    assert {one.reason: one.count for one in groups_of(placement, ()) if _able(one)} == close


def _able(group: PoolGroup) -> bool:
    return group.outcome == "slower"


def test_many_reasons_are_bounded_and_still_count_every_pool() -> None:
    pools = [make_pool(f"gpu.{i}@a", kinds=(f"kind-{'x' * i}",)) for i in range(40)]
    groups = groups_of(asked(make_cluster(*pools)), ())
    assert len(groups) == 1, "the wish for an engine comes first"
    pools = [make_pool(f"cpu.{i}@a", kinds=(f"kind-{'x' * i}",)) for i in range(40)]
    groups = groups_of(asked(make_cluster(*pools)), ())
    assert len(groups) == GROUPS
    assert sum(one.count for one in groups) == 40
    assert groups[-1].reason == "for other reasons"
