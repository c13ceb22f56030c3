"""What a person reads about a decision."""

from noidle.jobs import EngineName
from noidle.snapshot import PoolState, Pressure
from routing.board import HeldJob, PoolLoad
from routing.cluster import Cluster
from routing.explanation import VERDICTS_KEPT, decision_of, reason_of
from routing.groups import NAMED
from routing.placement import Action, Placement
from routing.policy import decide
from tests.unit.routing.builders import (
    MODEL,
    NOW_MS,
    make_cluster,
    make_job,
    make_pool,
    make_promise,
)

FAST = make_pool("cuda@a", tokens_per_s=10)
SLOW = make_pool("cpu@a", tokens_per_s=1)


def only(job: HeldJob, cluster: Cluster) -> Placement:
    (placement,) = decide([job], cluster, NOW_MS)
    return placement


def test_a_lease_names_the_winner_and_the_next_best() -> None:
    placement = only(make_job(), make_cluster(SLOW, FAST))
    assert reason_of(placement) == "ends in 1.00 s on cuda@a; next best is cpu@a with 10.00 s"


def test_waiting_names_what_it_is_for_and_what_is_free() -> None:
    cluster = make_cluster(SLOW, FAST, running=(make_promise("cuda@a", 5.0),))
    assert reason_of(only(make_job(max_tokens=20), cluster)) == (
        "waits 5.00 s for cuda@a (all slots are taken) and ends in 7.00 s; "
        "cpu@a is free but would need 20.00 s"
    )


def test_a_refusal_carries_its_figures() -> None:
    cluster = make_cluster(
        make_pool("cpu@a", pressure=Pressure.HARD, why="412 MiB available"),
        make_pool("cpu@b", published_ms=NOW_MS - 4200),
        make_pool("cuda@a", kv_tokens_total=64),
        make_pool("gpu@a", loaded=(), memory_free_bytes=3 * 2**30),
        make_pool("hybrid@a", state=PoolState.FAILED, why="no GPU found"),
        models={"mini": MODEL.model_copy(update={"weight_bytes": 7 * 2**30})},
    )
    decision = decision_of(only(make_job(max_tokens=100), cluster), NOW_MS)
    assert {one.pool: one.reason for one in decision.verdicts} == {
        "cpu@a": "is under hard memory pressure: 412 MiB available",
        "cpu@b": "was last heard of 4.2 s ago; that counts as full",
        "cuda@a": "needs KV cache for 112 tokens, the pool has 64 in all",
        "gpu@a": "mini needs 7.0 GiB of memory, 3.0 GiB can be had and nothing runs there",
        "hybrid@a": "its engine cannot start: no GPU found",
    }
    assert {one.outcome for one in decision.verdicts} == {"refused"}


def test_an_unplaceable_job_hears_why_of_each_of_the_first_pools() -> None:
    pools = [make_pool(f"cpu@{i}") for i in range(5)]
    placement = only(make_job(engine=EngineName.CUDA), make_cluster(*pools))
    assert placement.action is Action.UNPLACEABLE
    assert reason_of(placement) == (
        "no pool can run it: "
        "cpu@0 the job wants engine cuda, this is cpu; "
        "cpu@1 the job wants engine cuda, this is cpu; "
        "cpu@2 the job wants engine cuda, this is cpu; and 2 more"
    )


def test_without_pools_that_is_said() -> None:
    assert reason_of(only(make_job(), make_cluster())) == "no pool is there"


def test_each_verdict_says_what_its_time_is_made_of() -> None:
    cluster = make_cluster(
        make_pool(loaded=(), slots=4),
        loads={"cpu@a": PoolLoad(in_flight=1)},
        models={"mini": MODEL.model_copy(update={"weight_bytes": 2 * 10**9})},
    )
    decision = decision_of(only(make_job(prompt_bytes=400), cluster), NOW_MS)
    assert decision.verdicts[0].reason == (
        "a slot is free; loading mini 2.00 s, prefill of about 101 tokens 0.10 s, "
        "10 tokens in a batch of 2 1.00 s"
    )
    assert decision.verdicts[0].finish_s == 3.101


def test_a_training_slice_says_its_rate() -> None:
    cluster = make_cluster(make_pool(train_tokens_per_s=1234.0))
    decision = decision_of(only(make_job(kind="train"), cluster), NOW_MS)
    assert decision.verdicts[0].reason == "a slot is free; trains with 1234 tokens/s"


def test_trainings_are_compared_by_speed_and_not_by_the_end_of_a_slice() -> None:
    """Words such as "chosen in 5.03 s, slower in 5.01 s" made people wonder."""
    fast = make_pool("gpu@a", train_tokens_per_s=900.0)
    slow = make_pool("cpu@a", train_tokens_per_s=9.0)
    job = make_job(kind="train")
    decision = decision_of(only(job, make_cluster(slow, fast)), NOW_MS)
    wanted = "trains a slice with 900 tokens/s on gpu@a; next best is cpu@a with 9 tokens/s"
    assert decision.reason == wanted
    assert [one.finish_s for one in decision.verdicts] == [None, None]
    busy = make_cluster(slow, fast, running=(make_promise("gpu@a", 2.0),))
    assert reason_of(only(job, busy)) == (
        "waits 2.00 s for gpu@a (all slots are taken) and trains a slice with 900 tokens/s;"
        " cpu@a is free but trains with 9 tokens/s"
    )


def test_a_job_that_was_not_looked_at_still_has_a_reason() -> None:
    placement = Placement(job=make_job(), action=Action.WAIT)
    decision = decision_of(placement, NOW_MS)
    assert decision.reason == "jobs before it come first"
    assert decision.verdicts == ()


def test_a_job_behind_a_jam_hears_how_it_would_fare_behind_the_first_of_it() -> None:
    jobs = [make_job() for _ in range(40)]
    running = (make_promise("cuda@a", 5.0), make_promise("cpu@a", 30.0))
    last = decide(jobs, make_cluster(SLOW, FAST, running=running), NOW_MS)[-1]
    assert last.view is None
    decision = decision_of(last, NOW_MS)
    assert (decision.action, decision.cause, decision.pool) == ("wait", "behind", None)
    assert decision.reason == (
        "jobs before it come first; behind the first of them it would start in 21.02 s"
        " on cuda@a and end in 22.02 s"
    )
    assert [one.pool for one in decision.verdicts] == ["cuda@a", "cpu@a"]


def test_a_job_behind_a_jam_that_no_pool_can_run_hears_so() -> None:
    jobs = [make_job() for _ in range(40)]
    cluster = make_cluster(FAST, running=(make_promise("cuda@a", 5.0),))
    last = decide([*jobs, make_job(engine=EngineName.GPU)], cluster, NOW_MS)[-1]
    reason = decision_of(last, NOW_MS).reason
    assert reason.startswith("jobs before it come first; no pool can run it: cuda@a the job wants")


def test_the_verdicts_of_many_pools_are_bounded_and_the_rest_is_counted() -> None:
    pools = [make_pool(f"cpu@{i}", tokens_per_s=1 + i) for i in range(100)]
    decision = decision_of(only(make_job(), make_cluster(*pools)), NOW_MS)
    assert len(decision.verdicts) == VERDICTS_KEPT
    assert decision.verdicts[0].pool == decision.pool == "cpu@99"
    (group,) = decision.rest
    assert (group.outcome, group.reason) == ("slower", "a slot is free")
    assert group.count == 100 - VERDICTS_KEPT
    assert group.pools == tuple(f"cpu@{i}" for i in range(NAMED))
    assert (group.finish_from_s, group.finish_to_s) == (0.115, 10.001)
