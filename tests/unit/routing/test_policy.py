"""Sentence → cluster → wanted decision."""

from dataclasses import dataclass, field

import pytest

from noidle.jobs import EngineName, JobClass
from noidle.snapshot import ModelInfo, PoolState, Pressure
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster
from routing.placement import Action, Cause
from routing.policy import WAITING_SHOWN, decide
from tests.unit.routing.builders import (
    MODEL,
    NOW_MS,
    make_cluster,
    make_job,
    make_pool,
    make_promise,
)

BUSY_5_S = make_promise("cuda@a", 5.0)
SLOW = make_pool("cpu@a", tokens_per_s=1)
FAST = make_pool("cuda@a", tokens_per_s=10)


@dataclass
class Case:
    sentence: str
    cluster: Cluster
    # what becomes of each job, in the order given: "lease POOL", "wait POOL", "wait", "unplaceable"
    wanted: list[str]
    jobs: list[HeldJob] = field(default_factory=lambda: [make_job()])


def outcome(jobs: list[HeldJob], cluster: Cluster) -> list[str]:
    placements = {one.job.id: one for one in decide(jobs, cluster, NOW_MS)}
    made = [placements[job.id] for job in jobs]
    return [f"{one.action} {one.pool.pool if one.pool else ''}".strip() for one in made]


CHOICES = [
    Case("a free pool takes the job", make_cluster(SLOW), ["lease cpu@a"]),
    Case("of two free pools the faster takes it", make_cluster(SLOW, FAST), ["lease cuda@a"]),
    Case(
        "a short job goes to the slow pool when the fast one is full",
        make_cluster(SLOW, FAST, running=(BUSY_5_S,)),
        ["lease cpu@a"],
        [make_job(max_tokens=2)],
    ),
    Case(
        "a long job waits for the fast pool when that ends sooner",
        make_cluster(SLOW, FAST, running=(BUSY_5_S,)),
        ["wait cuda@a"],
        [make_job(max_tokens=20)],
    ),
    Case(
        "a long prompt counts as much as many tokens",
        make_cluster(
            make_pool("cpu@a", rates=SLOW.rates.model_copy(update={"prefill_tokens_per_s": 10.0})),
            FAST,
            running=(BUSY_5_S,),
        ),
        ["wait cuda@a"],
        [make_job(max_tokens=1, prompt_bytes=4000)],
    ),
    Case(
        "those who wait before a job count: the third takes the slow pool",
        make_cluster(SLOW, FAST, running=(BUSY_5_S,)),
        ["wait cuda@a", "wait cuda@a", "lease cpu@a"],
        [make_job(max_tokens=20), make_job(max_tokens=20), make_job(max_tokens=8)],
    ),
    Case(
        "a pool that has the model beats one that must load it first",
        make_cluster(
            make_pool("cpu@a", tokens_per_s=9),
            make_pool("cuda@a", loaded=()),
            models={"mini": MODEL.model_copy(update={"weight_bytes": 2_000_000_000})},
        ),
        ["lease cpu@a"],
    ),
    Case(
        "a long job pays for loading on the faster pool",
        make_cluster(
            make_pool("cpu@a", tokens_per_s=5),
            make_pool("cuda@a", loaded=()),
            models={"mini": MODEL.model_copy(update={"weight_bytes": 2_000_000_000})},
        ),
        ["lease cuda@a"],
        [make_job(max_tokens=100)],
    ),
    Case(
        "only the first job on a pool pays for loading the model",
        make_cluster(
            make_pool("cpu@a", tokens_per_s=3, slots=2),
            make_pool("cuda@a", tokens_per_s=100, loaded=(), slots=2),
            models={"mini": MODEL.model_copy(update={"weight_bytes": 2_000_000_000})},
        ),
        ["lease cuda@a", "lease cuda@a"],
        [make_job(max_tokens=100), make_job(max_tokens=7)],
    ),
    Case(
        "jobs spread over equal pools rather than share one batch",
        make_cluster(
            *(
                make_pool(
                    name,
                    slots=4,
                    rates=SLOW.rates.model_copy(update={"step_s_per_sequence": 0.1}),
                )
                for name in ("cpu@a", "cpu@b")
            )
        ),
        ["lease cpu@a", "lease cpu@b"],
        [make_job(), make_job()],
    ),
    Case(
        "an overdue run is not expected to end at once",
        make_cluster(
            SLOW,
            FAST,
            running=(make_promise("cuda@a", -1.0, leased_ms=NOW_MS - 40_000),),
        ),
        ["lease cpu@a"],
        [make_job(max_tokens=5)],
    ),
    Case(
        "leases of another router count with typical ends",
        make_cluster(SLOW, FAST, loads={"cuda@a": PoolLoad(in_flight=1)}),
        ["lease cpu@a"],
        [make_job(max_tokens=5)],
    ),
]

ORDER = [
    Case(
        "an urgent class goes first, whatever came before",
        make_cluster(make_pool(slots=3)),
        ["wait cpu@a", "lease cpu@a", "lease cpu@a", "lease cpu@a"],
        [
            make_job(job_class=JobClass.BACKGROUND),
            make_job(job_class=JobClass.BATCH),
            make_job(job_class=JobClass.STANDARD),
            make_job(job_class=JobClass.INTERACTIVE),
        ],
    ),
    Case(
        "within a class the first accepted goes first",
        make_cluster(make_pool()),
        ["wait cpu@a", "lease cpu@a"],
        [make_job(accepted_ms=NOW_MS - 10), make_job(accepted_ms=NOW_MS - 20)],
    ),
    Case(
        "jobs that no pool can run block nobody",
        make_cluster(make_pool()),
        ["unplaceable"] * 40 + ["lease cpu@a"],
        [make_job(engine=EngineName.CUDA, job_class=JobClass.INTERACTIVE) for _ in range(40)]
        + [make_job(job_class=JobClass.BACKGROUND)],
    ),
    Case(
        "a large pool keeps its last slot from background work",
        make_cluster(make_pool(slots=4)),
        ["lease cpu@a", "lease cpu@a", "lease cpu@a", "wait cpu@a"],
        [make_job(job_class=JobClass.BACKGROUND) for _ in range(4)],
    ),
    Case(
        "and gives it to any other class",
        make_cluster(make_pool(slots=4), loads={"cpu@a": PoolLoad(in_flight=3)}),
        ["wait cpu@a", "lease cpu@a"],
        [make_job(job_class=JobClass.BACKGROUND), make_job(job_class=JobClass.BATCH)],
    ),
    Case(
        "a small pool gives background work all its slots",
        make_cluster(make_pool(slots=3)),
        ["lease cpu@a"] * 3,
        [make_job(job_class=JobClass.BACKGROUND) for _ in range(3)],
    ),
]


def failing(name: str, **fields: object) -> Case:
    """A pool that cannot take the job, beside another of its engine that can."""
    bad = make_pool("cpu.1@a", tokens_per_s=1000, **fields)
    return Case(name, make_cluster(bad, make_pool("cpu.2@a")), ["lease cpu.2@a"])


GATE = [
    failing("a pool under hard memory pressure gets nothing", pressure=Pressure.HARD),
    failing("a draining pool gets nothing", state=PoolState.DRAINING),
    failing("a starting pool gets nothing", state=PoolState.STARTING),
    failing("a failed pool gets nothing", state=PoolState.FAILED),
    failing("a pool not heard of for three seconds gets nothing", published_ms=NOW_MS - 3001),
    failing("a pool whose engine cannot do the kind gets nothing", kinds=("score",)),
    failing("a pool that cannot read the model gets nothing", models=(), storage="disk-2"),
    failing("a pool with less KV cache than the job needs gets nothing", kv_tokens_total=8),
    Case(
        "soft pressure stops training and nothing else",
        make_cluster(make_pool(pressure=Pressure.SOFT, slots=2)),
        ["wait", "lease cpu@a"],
        [make_job(kind="train"), make_job()],
    ),
    Case(
        "a pool on the model's storage can run it before it lists it",
        make_cluster(make_pool(models=(), loaded=())),
        ["lease cpu@a"],
    ),
    Case(
        "a wish for an engine is kept, though another would be faster",
        make_cluster(SLOW, FAST),
        ["lease cpu@a"],
        [make_job(engine=EngineName.CPU)],
    ),
    Case(
        "a model without a checkpoint waits for its training",
        make_cluster(make_pool(), models={"mini": ModelInfo(name="mini", planned="job-t")}),
        ["wait"],
    ),
    Case(
        "a training needs no checkpoint",
        make_cluster(
            make_pool(models=()), models={"mini": ModelInfo(name="mini", planned="job-t")}
        ),
        ["lease cpu@a"],
        [make_job(kind="train")],
    ),
    Case(
        "a built-in model runs where it is built in",
        make_cluster(
            make_pool("cpu@a", storage=None),
            make_pool("cpu@b", storage=None, models=("echo",)),
            models={"echo": ModelInfo(name="echo")},
        ),
        ["lease cpu@b"],
        [make_job(model="echo")],
    ),
    Case(
        "a slice goes only where its checkpoint can be read",
        make_cluster(make_pool("cpu@a"), make_pool("cpu@b", storage="disk-2")),
        ["lease cpu@b", "unplaceable"],
        [
            make_job(kind="train", model="other", storage="disk-2"),
            make_job(kind="train", model="other", storage="disk-3"),
        ],
    ),
    Case(
        "more tokens than the context fit nowhere",
        make_cluster(make_pool()),
        ["unplaceable", "lease cpu@a"],
        [make_job(max_tokens=4096), make_job(max_tokens=4095)],
    ),
    Case("without any pool a job is unplaceable", make_cluster(), ["unplaceable"]),
    Case(
        "a pool that is only busy with itself makes no job unplaceable",
        make_cluster(make_pool(state=PoolState.DRAINING)),
        ["wait"],
    ),
    Case(
        "a pool whose engine cannot start does",
        make_cluster(make_pool(state=PoolState.FAILED, why="no such device")),
        ["unplaceable"],
    ),
]

BIG = MODEL.model_copy(update={"weight_bytes": 8 * 2**30, "kv_bytes_per_token": 2**20})
OTHER = MODEL.model_copy(update={"name": "other", "weight_bytes": 4 * 2**30})
GIB = 2**30

MEMORY = [
    Case(
        "a model that does not fit an idle pool makes the job unplaceable",
        make_cluster(make_pool(loaded=(), memory_free_bytes=7 * GIB), models={"mini": BIG}),
        ["unplaceable"],
    ),
    Case(
        "a loaded model needs no more room for its weights",
        make_cluster(make_pool(memory_free_bytes=GIB, kv_tokens_total=64), models={"mini": BIG}),
        ["lease cpu@a"],
    ),
    Case(
        "an idle model may leave for another",
        make_cluster(
            make_pool(loaded=("other",), memory_free_bytes=5 * GIB),
            models={"mini": BIG, "other": OTHER},
        ),
        ["lease cpu@a"],
    ),
    Case(
        "a model in use may not",
        make_cluster(
            make_pool(loaded=("other",), memory_free_bytes=5 * GIB, slots=2),
            models={"mini": BIG, "other": OTHER},
            running=(make_promise("cpu@a", 1.0, model="other"),),
        ),
        ["wait"],
    ),
    Case(
        "two models that fit one at a time are not loaded together",
        make_cluster(
            make_pool(loaded=(), models=("mini", "other"), memory_free_bytes=10 * GIB, slots=2),
            models={"mini": BIG, "other": OTHER},
        ),
        ["lease cpu@a", "wait cpu@a"],
        [make_job(), make_job(model="other")],
    ),
    Case(
        "KV cache that the pool does not bound by tokens comes out of its memory",
        make_cluster(
            make_pool(memory_free_bytes=GIB, slots=2),
            models={"mini": BIG},
            loads={"cpu@a": PoolLoad(in_flight=1, memory_bytes=GIB - 16 * 2**20 + 1)},
        ),
        ["wait cpu@a"],
    ),
]

KV = [
    Case(
        "a job starts while the KV cache has room for it",
        make_cluster(
            make_pool(slots=8, kv_tokens_total=64),
            loads={"cpu@a": PoolLoad(in_flight=1, kv_tokens=48)},
        ),
        ["lease cpu@a", "wait cpu@a"],
        [make_job(), make_job()],
    ),
    Case(
        "a job that waits for KV cache is not overtaken by one that would delay it",
        make_cluster(
            make_pool(slots=8, kv_tokens_total=128),
            loads={"cpu@a": PoolLoad(in_flight=1, kv_tokens=80)},
            running=(make_promise("cpu@a", 2.0),),
        ),
        ["wait cpu@a", "wait cpu@a", "lease cpu@a"],
        [make_job(max_tokens=90), make_job(max_tokens=30), make_job(max_tokens=16)],
    ),
]

KV_OF_OTHERS = [
    Case(
        "a bound on the KV cache of other models says nothing of this one's",
        make_cluster(
            make_pool(loaded=("other",), models=("mini", "other"), slots=8, kv_tokens_total=16),
            models={"mini": MODEL, "other": OTHER},
            loads={"cpu@a": PoolLoad(in_flight=1, kv_tokens=16)},
        ),
        ["lease cpu@a", "wait cpu@a"],
        [make_job(max_tokens=90), make_job(model="other", max_tokens=8, prompt_bytes=1)],
    ),
]

ALONE = [
    Case(
        "a suspect waits until its pool is empty, and keeps others out that would delay it",
        make_cluster(make_pool(slots=4), running=(make_promise("cpu@a", 2.0),)),
        ["wait cpu@a", "wait cpu@a", "lease cpu@a"],
        [make_job(alone=True), make_job(max_tokens=30), make_job(max_tokens=10)],
    ),
    Case(
        "a suspect takes an empty pool for itself",
        make_cluster(make_pool(slots=4)),
        ["lease cpu@a", "wait cpu@a"],
        [make_job(alone=True), make_job()],
    ),
    Case(
        "a suspect prefers the empty pool to the faster one that is not",
        make_cluster(
            make_pool("cpu@a", slots=4),
            make_pool("cuda@a", slots=4, tokens_per_s=20),
            running=(make_promise("cuda@a", 2.0),),
        ),
        ["lease cpu@a"],
        [make_job(alone=True)],
    ),
    Case(
        "nothing joins a suspect that runs",
        make_cluster(make_pool(slots=4), loads={"cpu@a": PoolLoad(in_flight=1, alone=True)}),
        ["wait cpu@a"],
    ),
]

TRAINING = [
    Case(
        "training goes where it is fastest",
        make_cluster(
            make_pool("cpu@a", train_tokens_per_s=100.0),
            make_pool("cuda@a", train_tokens_per_s=200.0),
            make_pool("gpu@a", train_tokens_per_s=900.0),
        ),
        ["lease gpu@a"],
        [make_job(kind="train")],
    ),
    Case(
        "where all are equal it goes to gpu",
        make_cluster(
            *(make_pool(f"{name}@a", train_tokens_per_s=9.0) for name in ("cpu", "gpu", "hybrid"))
        ),
        ["lease gpu@a"],
        [make_job(kind="train")],
    ),
    Case(
        "it waits for the fastest where a slice elsewhere would gain less than it costs",
        make_cluster(
            make_pool("cpu@a", train_tokens_per_s=10.0),
            make_pool("gpu@a", train_tokens_per_s=100.0),
            running=(make_promise("gpu@a", 4.0),),
        ),
        ["wait gpu@a"],
        [make_job(kind="train")],
    ),
    Case(
        "it takes a slice elsewhere where the fastest is busy for longer",
        make_cluster(
            make_pool("cpu@a", train_tokens_per_s=10.0),
            make_pool("gpu@a", train_tokens_per_s=100.0),
            running=(make_promise("gpu@a", 5.0),),
        ),
        ["lease cpu@a"],
        [make_job(kind="train")],
    ),
    Case(
        "one training runs in a pool at a time",
        make_cluster(make_pool(slots=3), running=(make_promise("cpu@a", 4.0, kind="train"),)),
        ["wait cpu@a", "lease cpu@a"],
        [make_job(kind="train"), make_job()],
    ),
    Case(
        "two trainings do not start in one pool at once; who had less service goes first",
        make_cluster(make_pool(slots=3)),
        ["wait cpu@a", "lease cpu@a"],
        [
            make_job(kind="train", order=9.0, held_since_ms=NOW_MS - 900),
            make_job(kind="train", order=4.0, held_since_ms=NOW_MS - 100),
        ],
    ),
    Case(
        "a slice that comes back lets other background work of its class go before it",
        make_cluster(make_pool()),
        ["wait cpu@a", "lease cpu@a"],
        [
            make_job(kind="train", accepted_ms=NOW_MS - 90_000, held_since_ms=NOW_MS - 10),
            make_job(job_class=JobClass.BACKGROUND, accepted_ms=NOW_MS - 500),
        ],
    ),
]


@pytest.mark.parametrize(
    "case",
    CHOICES + ORDER + GATE + MEMORY + KV + KV_OF_OTHERS + ALONE + TRAINING,
    ids=lambda case: case.sentence.replace(" ", "_"),
)
def test_the_wanted_decision_is_made(case: Case) -> None:
    assert outcome(case.jobs, case.cluster) == case.wanted


def test_the_engines_queue_is_used_while_the_engine_has_one_pool() -> None:
    (placement,) = decide([make_job()], make_cluster(SLOW, FAST), NOW_MS)
    assert placement.grant
    assert placement.grant.queue == "cuda"


@pytest.mark.parametrize(
    "cluster",
    [
        make_cluster(make_pool("cuda.1@a"), make_pool("cuda.2@a", state=PoolState.DRAINING)),
        make_cluster(make_pool("cuda.1@a"), shared=frozenset({EngineName.CUDA})),
    ],
    ids=["two_pools_are_there", "a_second_pool_was_there_lately"],
)
def test_a_pools_own_queue_is_used_where_another_might_take_the_message(cluster: Cluster) -> None:
    (placement,) = decide([make_job()], cluster, NOW_MS)
    assert placement.grant
    assert placement.grant.queue == "cuda.1@a"


def test_no_pool_gets_more_than_its_slots_and_every_job_gets_an_answer() -> None:
    pools = [make_pool(f"cpu@{i}", slots=3) for i in range(5)]
    jobs = [make_job() for _ in range(500)]
    placements = decide(jobs, make_cluster(*pools), NOW_MS)
    leased = [one.pool.pool for one in placements if one.grant and one.pool]
    assert len(placements) == 500
    assert sorted(leased) == sorted(f"cpu@{i}" for i in range(5) for _ in range(3))


def test_behind_the_jobs_that_explain_the_jam_none_is_looked_at() -> None:
    """A saturated cluster must not pay for each of thousands of held jobs at each look."""
    jobs = [make_job() for _ in range(WAITING_SHOWN + 3)]
    cluster = make_cluster(make_pool(), running=(make_promise("cpu@a", 1.0),))
    placements = decide(jobs, cluster, NOW_MS)
    assert [one.view is not None for one in placements] == [True] * WAITING_SHOWN + [False] * 3
    assert {one.action for one in placements} == {Action.WAIT}


def test_a_lease_reserves_what_the_job_needs() -> None:
    pool = make_pool(loaded=(), memory_free_bytes=9 * GIB, kv_tokens_total=1000)
    cluster = make_cluster(pool, models={"mini": BIG})
    (placement,) = decide([make_job(prompt_bytes=100, max_tokens=10)], cluster, NOW_MS)
    assert placement.grant
    assert placement.need
    assert placement.need.kv_tokens == 48  # 25 + 10 in blocks of 16
    assert placement.grant.memory_bytes == 8 * GIB
    assert placement.grant.memory_limit == 9 * GIB
    assert placement.grant.ready_s == pytest.approx(8 * GIB / 1e9)


def test_a_job_that_waits_for_kv_cache_says_so() -> None:
    cluster = make_cluster(
        make_pool(slots=8, kv_tokens_total=64),
        loads={"cpu@a": PoolLoad(in_flight=1, kv_tokens=64)},
    )
    (placement,) = decide([make_job()], cluster, NOW_MS)
    assert placement.forecast
    assert placement.forecast[2] is Cause.KV
