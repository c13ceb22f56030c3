"""Sentence → cluster → wanted decision, for deadlines, floods, lies and shared devices."""

import pytest

from noidle.jobs import JobClass
from noidle.snapshot import Rates
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster, Drag
from routing.explanation import reason_of
from routing.placement import Action, Cause
from routing.policy import decide
from tests.unit.routing.builders import (
    MODEL,
    NOW_MS,
    make_cluster,
    make_job,
    make_pool,
    make_promise,
)
from tests.unit.routing.test_policy import GIB, Case, outcome

SLOW = make_pool("cpu@a", tokens_per_s=1)
FAST = make_pool("cuda@a", tokens_per_s=10)
STARVED = {"accepted_ms": NOW_MS - 2_000_000, "held_since_ms": NOW_MS - 2_000_000}


def due(seconds: float, **fields: object) -> HeldJob:
    return make_job(deadline_ms=NOW_MS + int(seconds * 1000), **fields)


DEADLINES = [
    Case(
        "a deadline that can be met changes nothing", make_cluster(SLOW), ["lease cpu@a"], [due(11)]
    ),
    Case(
        "a deadline that no pool can meet is refused at once",
        make_cluster(SLOW, FAST),
        ["refused cuda@a", "lease cuda@a"],
        [due(0.5), due(2)],
    ),
    Case(
        "and so is one that is too near for those that wait before it",
        make_cluster(FAST, running=(make_promise("cuda@a", 5.0),)),
        ["refused cuda@a", "wait cuda@a"],
        [due(5.5), due(7)],
    ),
    Case(
        "a job that is refused takes no slot from anybody",
        make_cluster(FAST, running=(make_promise("cuda@a", 1.0),)),
        ["refused cuda@a", "wait cuda@a"],
        [due(1.5), due(2.5)],
    ),
    Case(
        "where pools are only busy with themselves, a deadline is refused once it passed",
        make_cluster(make_pool(published_ms=NOW_MS - 9000)),
        ["wait", "refused"],
        [due(5), due(-1)],
    ),
    Case(
        "a training is not predicted whole",
        make_cluster(FAST),
        ["lease cuda@a"],
        [due(1, kind="train")],
    ),
]

READING = [
    Case(
        "a job waits until the prompts that were sent before it are read",
        make_cluster(
            make_pool("cuda@a", slots=4),
            running=(make_promise("cuda@a", 9.0, read_ms=NOW_MS + 3000),),
        ),
        ["wait cuda@a"],
    ),
    Case(
        "but not longer than the pool could run out of prompts",
        make_cluster(
            make_pool("cuda@a", slots=4),
            running=(make_promise("cuda@a", 9.0, read_ms=NOW_MS + 400),),
        ),
        ["lease cuda@a"],
    ),
    Case(
        "prompts of those that wait before it count as well",
        make_cluster(
            make_pool("cpu@a", tokens_per_s=3, slots=4),
            make_pool("cuda@a", slots=4),
            running=(make_promise("cuda@a", 9.0, read_ms=NOW_MS + 1000),),
        ),
        ["wait cuda@a", "lease cpu@a"],
        [make_job(prompt_bytes=12_000), make_job()],
    ),
    Case(
        "of a burst of long jobs only the first is sent to be read",
        make_cluster(make_pool("cuda@a", slots=8)),
        ["lease cuda@a"] + ["wait cuda@a"] * 5,
        [make_job(prompt_bytes=4000 * 3) for _ in range(6)],
    ),
]

URGENT = [
    Case(
        "of a burst of long jobs that came before it an urgent one waits for none",
        make_cluster(make_pool("cuda@a", slots=8)),
        ["wait cuda@a"] * 5 + ["lease cuda@a"],
        [
            *(make_job(prompt_bytes=4000 * 3) for _ in range(5)),
            make_job(job_class=JobClass.INTERACTIVE, prompt_bytes=4000 * 3),
        ],
    ),
    Case(
        "what is reserved for a lower class is not reserved from a higher one",
        make_cluster(
            make_pool(slots=8, kv_tokens_total=128),
            loads={"cpu@a": PoolLoad(in_flight=1, kv_tokens=64)},
            running=(make_promise("cpu@a", 2.0),),
        ),
        ["wait cpu@a", "wait cpu@a", "lease cpu@a"],
        [
            make_job(job_class=JobClass.BATCH, max_tokens=90),
            make_job(job_class=JobClass.BATCH, max_tokens=30),
            make_job(job_class=JobClass.INTERACTIVE, max_tokens=30),
        ],
    ),
]

LIES = [
    Case(
        "a pool that was seen to be ten times slower than it claims is taken for what it is",
        make_cluster(
            make_pool("cpu@a", tokens_per_s=2), FAST, drag={"cuda@a": Drag(read=10.0, decode=10.0)}
        ),
        ["lease cpu@a"],
    ),
    Case(
        "a producer's hint counts, not the most that it allows",
        make_cluster(SLOW, FAST, running=(make_promise("cuda@a", 5.0),)),
        ["lease cpu@a", "wait cuda@a"],
        [make_job(max_tokens=20, expected_tokens=2), make_job(max_tokens=20)],
    ),
    Case(
        "without a hint what such answers had counts",
        make_cluster(
            SLOW,
            FAST,
            running=(make_promise("cuda@a", 5.0),),
            lengths={("generate", "mini", "chat", 5): 0.1},
        ),
        ["lease cpu@a", "wait cuda@a"],
        [make_job(max_tokens=20, label="chat"), make_job(max_tokens=20, label="essay")],
    ),
    Case(
        "clocks of hosts do not matter: what is late is so by Redis's clock",
        make_cluster(make_pool(published_ms=NOW_MS + 60_000)),
        ["lease cpu@a"],
    ),
    Case(
        "where all pools are stale nothing is leased and nothing fails",
        make_cluster(*(make_pool(f"cpu@{i}", published_ms=NOW_MS - 4000) for i in "abc")),
        ["wait"],
    ),
    Case(
        "a job whose only pool has left is unplaceable beside pools that cannot run it",
        make_cluster(make_pool("cpu@b", kinds=("score",))),
        ["unplaceable"],
    ),
]

STARVING = [
    Case(
        "what starves takes the next slot, before what is urgent",
        make_cluster(make_pool()),
        ["wait cpu@a", "lease cpu@a"],
        [make_job(job_class=JobClass.INTERACTIVE), make_job(job_class=JobClass.BATCH, **STARVED)],
    ),
    Case(
        "but no more than a tenth of the slots",
        make_cluster(make_pool(), lifted=1),
        ["lease cpu@a", "wait cpu@a"],
        [make_job(job_class=JobClass.INTERACTIVE), make_job(job_class=JobClass.BATCH, **STARVED)],
    ),
]

WEIGHTY = MODEL.model_copy(update={"weight_bytes": 8 * GIB, "kv_bytes_per_token": 2**20})
CARD = {"device": "cuda:0", "loaded": (), "memory_free_bytes": 10 * GIB}
DEVICES = [
    Case(
        "three pools that share a device share its memory",
        make_cluster(
            *(make_pool(f"cuda.{i}@a", **CARD) for i in (1, 2, 3)), models={"mini": WEIGHTY}
        ),
        ["lease cuda.1@a", "wait cuda.2@a", "wait cuda.2@a"],
        [make_job(), make_job(), make_job()],
    ),
    Case(
        "what is leased in one of them is missing in the others",
        make_cluster(
            *(make_pool(f"cuda.{i}@a", **CARD) for i in (1, 2)),
            models={"mini": WEIGHTY},
            loads={"cuda.1@a": PoolLoad(in_flight=1, memory_bytes=3 * GIB)},
        ),
        ["wait"],
    ),
    Case(
        "what runs need beside weights and KV cache counts, for each of them",
        make_cluster(make_pool(slots=4, memory_free_bytes=5 * GIB, working_bytes=2 * GIB)),
        ["lease cpu@a", "lease cpu@a", "wait cpu@a"],
        [make_job() for _ in range(3)],
    ),
    Case(
        "devices of one name on other hosts do not count",
        make_cluster(
            make_pool("cuda@a", **CARD),
            make_pool("cuda@b", **CARD),
            models={"mini": WEIGHTY},
        ),
        ["lease cuda@a", "lease cuda@b"],
        [make_job(), make_job()],
    ),
]


@pytest.mark.parametrize(
    "case",
    DEADLINES + READING + URGENT + LIES + STARVING + DEVICES,
    ids=lambda case: case.sentence.replace(" ", "_"),
)
def test_the_wanted_decision_is_made(case: Case) -> None:
    assert outcome(case.jobs, case.cluster) == case.wanted


def test_a_refused_deadline_says_what_was_predicted() -> None:
    (placement,) = decide([due(0.5)], make_cluster(SLOW, FAST), NOW_MS)
    assert placement.action is Action.REFUSED
    assert reason_of(placement) == (
        "its deadline is in 0.50 s, and the best pool, cuda@a, would end it in 1.00 s"
    )


@pytest.mark.parametrize("deep", [True, False])
def test_a_deadline_that_cannot_be_met_is_refused_behind_any_number_of_others(deep: bool) -> None:
    """Those that are not looked at were held, and told nothing, until their turn came."""
    running = () if not deep else (make_promise("cuda@a", 5.0),)
    cluster = make_cluster(make_pool("cuda@a", slots=1 if deep else 99), running=running)
    first = [make_job() for _ in range(40)]
    late, soon = due(0.5, job_class=JobClass.BACKGROUND), due(60, job_class=JobClass.BACKGROUND)
    placements = {
        one.job.id: one for one in decide([*first, late, soon], cluster, NOW_MS, deep=deep)
    }
    assert placements[soon.id].view is None, "it was not looked at"
    assert placements[late.id].action is Action.REFUSED
    assert reason_of(placements[late.id]).startswith("its deadline is in 0.50 s, and the best pool")
    assert placements[soon.id].action is Action.WAIT


def test_parts_of_a_prompt_are_read_between_steps_of_others() -> None:
    """Ten parts of 100 tokens, each in one pass with a decode step that takes twice as long."""
    rates = Rates(prefill_tokens_per_s=1000.0, step_s=0.2, chunk_tokens=100)
    cluster: Cluster = make_cluster(
        make_pool(slots=2, rates=rates), running=(make_promise("cpu@a", 60.0),)
    )
    (placement,) = decide([make_job(prompt_bytes=3996, max_tokens=1)], cluster, NOW_MS)
    assert placement.forecast
    assert placement.forecast[0] == pytest.approx(10 * 0.2 + 0.2)


def test_a_job_that_waits_for_prompts_says_so() -> None:
    running = (make_promise("cpu@a", 9.0, read_ms=NOW_MS + 3000),)
    (placement,) = decide([make_job()], make_cluster(make_pool(slots=2), running=running), NOW_MS)
    assert placement.forecast
    assert placement.forecast[2] is Cause.READING
    assert "prompts sent there before it" in reason_of(placement)
