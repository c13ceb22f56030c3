"""What a router remembers of its leases."""

from routing.board import HeldJob, PoolLoad
from routing.policy import decide
from routing.promises import Promises
from tests.unit.routing.builders import NOW_MS, make_cluster, make_job, make_pool


def promised(*jobs: HeldJob) -> Promises:
    promises = Promises()
    for placement in decide(jobs, make_cluster(make_pool(slots=9)), NOW_MS):
        promises.make(placement, NOW_MS)
    return promises


def test_a_lease_is_remembered_with_its_predicted_end() -> None:
    job = make_job(max_tokens=20)
    (promise,) = promised(job).settle({"cpu@a": PoolLoad(in_flight=1)})["cpu@a"]
    assert (promise.job, promise.model, promise.leased_ms) == (job.id, "mini", NOW_MS)
    assert promise.ends_ms == NOW_MS + 2001  # one token of prompt, twenty at 10 a second


def test_when_a_lease_ended_the_one_that_should_have_is_forgotten() -> None:
    short, long = make_job(max_tokens=10), make_job(max_tokens=90)
    promises = promised(long, short)
    (left,) = promises.settle({"cpu@a": PoolLoad(in_flight=1)})["cpu@a"]
    assert left.job == long.id
    assert promises.settle({})["cpu@a"] == ()
    assert promises.settle({"cpu@a": PoolLoad(in_flight=5)}) == {}


def test_a_job_that_is_held_again_has_no_lease() -> None:
    first, second = make_job(), make_job()
    promises = promised(first, second)
    promises.drop([first.id, "unknown"])
    (left,) = promises.settle({"cpu@a": PoolLoad(in_flight=2)})["cpu@a"]
    assert left.job == second.id


def test_a_job_has_one_lease_at_most() -> None:
    slice_again = make_job(kind="train")
    promises = promised(slice_again)
    for placement in decide([slice_again], make_cluster(make_pool("gpu@b")), NOW_MS):
        promises.make(placement, NOW_MS + 5000)
    loads = {"cpu@a": PoolLoad(in_flight=1), "gpu@b": PoolLoad(in_flight=1)}
    assert {pool: len(made) for pool, made in promises.settle(loads).items()} == {"gpu@b": 1}


def test_what_runs_is_counted_by_class_and_label() -> None:
    first, second = make_job(label="north"), make_job(label="north")
    promises = promised(first, second)
    assert promises.serving == {(first.job_class, "north"): 2}
    promises.end(first.id)
    assert promises.serving == {(first.job_class, "north"): 1}
    promises.settle({})
    assert promises.serving == {}


def test_a_pool_of_which_nothing_changed_keeps_its_promises() -> None:
    promises = promised(make_job())
    loads = {"cpu@a": PoolLoad(in_flight=1)}
    assert promises.settle(loads)["cpu@a"] is promises.settle(loads)["cpu@a"]
