"""What is kept between two looks changes no decision."""

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from noidle.jobs import EngineName, JobClass
from noidle.snapshot import PoolSnapshot, PoolState, Pressure, Rates
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster
from routing.explanation import decision_of
from routing.policy import decide
from routing.roster import Roster
from tests.unit.routing.builders import MODEL, NOW_MS, make_job, make_pool, make_promise

OTHER = MODEL.model_copy(update={"name": "other", "weight_bytes": 2 * 10**9, "context": 512})
NAMES = ("cpu@a", "cpu@b", "cuda.1@a", "cuda.2@a", "gpu@b", "hybrid@c")


def some_pool(dice: random.Random, name: str, now_ms: int) -> PoolSnapshot:
    return make_pool(
        name,
        device=dice.choice(["one", "two"]),
        slots=dice.choice([1, 2, 5]),
        state=dice.choice([PoolState.READY] * 5 + list(PoolState)),
        pressure=dice.choice([Pressure.OK] * 5 + list(Pressure)),
        kinds=dice.choice([("generate", "train"), ("generate",)]),
        models=("mini", "other"),
        loaded=dice.choice([("mini",), ("other",), ("mini", "other"), ()]),
        kv_tokens_total=dice.choice([None, 64, 4096]),
        memory_free_bytes=dice.choice([None, 10**9, 4 * 10**9]),
        published_ms=now_ms - dice.choice([500] * 5 + [5000]),
        rates=dice.choice(
            [
                Rates(),
                Rates(prefill_tokens_per_s=dice.uniform(10, 1000), step_s=dice.uniform(0.01, 0.5)),
                Rates(step_s=0.1, step_s_per_sequence=0.02, prefill_tokens_per_s=100.0),
            ]
        ),
    )


def some_job(dice: random.Random) -> HeldJob:
    return make_job(
        kind=dice.choice(["generate"] * 5 + ["train", "score"]),
        model=dice.choice(["mini", "other"]),
        job_class=dice.choice(list(JobClass)),
        engine=dice.choice([None] * 5 + list(EngineName)),
        prompt_bytes=dice.randrange(2000),
        max_tokens=dice.randrange(1, 600),
        alone=dice.random() < 0.1,
    )


def some_cluster(dice: random.Random, before: Cluster | None, now_ms: int) -> Cluster:
    """Much of it as it was before, down to the objects."""
    known = {pool.pool: pool for pool in before.pools} if before else {}
    names = [name for name in NAMES if dice.random() < 0.9]
    pools = tuple(
        known[name] if name in known and dice.random() < 0.6 else some_pool(dice, name, now_ms)
        for name in names
    )
    promises = dict(before.promises) if before else {}
    loads = dict(before.loads) if before else {}
    for name in names:
        if dice.random() < 0.6:
            count = dice.randrange(6)
            promises[name] = tuple(
                make_promise(name, dice.uniform(-3, 9), kind=dice.choice(["generate", "train"]))
                for _ in range(count)
            )
            loads[name] = PoolLoad(
                in_flight=max(count + dice.choice([0, 0, 0, 1, -1]), 0),
                kv_tokens=dice.randrange(64),
                memory_bytes=dice.randrange(10**9),
                alone=dice.random() < 0.05,
            )
    changes = {
        "revision": dice.choice([None, "a", "b"]),
        "weight_bytes": dice.choice([None, 10**9]),
    }
    mini = MODEL.model_copy(update=changes) if dice.random() < 0.3 else MODEL
    models = {"mini": mini, "other": OTHER} if dice.random() < 0.8 else {"mini": mini}
    return Cluster(pools=pools, loads=loads, models=models, promises=promises)


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 2**32))
def test_a_roster_that_saw_other_clusters_decides_as_a_new_one_does(seed: int) -> None:
    dice = random.Random(seed)
    roster, cluster = Roster(), None
    for look in range(6):
        now_ms = NOW_MS + 300 * look
        cluster = some_cluster(dice, cluster, now_ms)
        jobs = [some_job(dice) for _ in range(12)]
        kept = [decision_of(one, now_ms) for one in decide(jobs, cluster, now_ms, roster)]
        assert kept == [decision_of(one, now_ms) for one in decide(jobs, cluster, now_ms)]
