"""The pump that has runs make room, over the board in memory."""

from typing import Any

import pytest

from noidle.jobs import EngineName, JobClass, parse_job
from noidle.results import JobState
from noidle.snapshot import ModelInfo, Pressure
from routing.board import Checkpoint, StepReport, Verdict
from routing.bounds import PREEMPTIONS_IN_A_ROW
from routing.memory_board import MemoryBoard
from routing.preemption import RESPONSE_FIRST, TRAINING_FIRST, Terms
from routing.pump import Pump
from tests.unit.routing.builders import make_pool

POOL = "cpu@a"
INFO = ModelInfo(name="mini", revision="r0", storage="disk-1", context=4096)


class Cluster:
    """One pool of one slot, a board, a pump, a clock that tests move."""

    def __init__(self, terms: Terms = RESPONSE_FIRST) -> None:
        self.now_s = 1_800_000_000.0
        self.board = MemoryBoard(clock=lambda: self.now_s)
        self.board.register(INFO)
        self.pump = Pump(self.board, "router@a", clock=lambda: self.now_s, terms=terms)
        self.publish()

    def publish(self, pool: str = POOL, **fields: Any) -> None:
        self.board.publish(make_pool(pool, **({"published_ms": 0} | fields)))

    def accept(self, job_id: str, job_class: JobClass, **fields: Any) -> None:
        values = {"kind": "generate", "model": "mini", "max_tokens": 100, "prompt": "p"}
        if fields.get("kind") == "train":
            values = {"model": "mini", "text": "t", "steps": 900}
        job = {"id": job_id, "class": job_class.value, **values, **fields}
        assert self.board.accept(parse_job(job))

    def look(self, later_s: float = 0.3, **pool: Any) -> None:
        self.now_s += later_s
        self.publish(**pool)
        self.pump.look()

    def token(self, job_id: str) -> str:
        return next(one.token for one in self.board.running([POOL]) if one.id == job_id)

    def claim(self, job_id: str) -> None:
        self.board.claim(job_id, self.token(job_id), POOL, 1)

    def run(self, job_id: str, job_class: JobClass, **fields: Any) -> None:
        """It has the slot."""
        self.accept(job_id, job_class, **fields)
        self.look()
        self.claim(job_id)

    def report(self, job_id: str, **fields: Any) -> Verdict:
        step = StepReport(job=job_id, token=self.token(job_id), **fields)
        return self.board.report(POOL, [step])[job_id]

    def leave(self, job_id: str) -> None:
        assert self.board.hand_back(job_id, self.token(job_id))

    def yields(self, job_id: str, step: int) -> None:
        checkpoint = Checkpoint(name=f"step-{step}", storage="disk-1", step=step)
        model = INFO.model_copy(update={"revision": f"step-{step}"})
        assert self.board.yield_slice(job_id, self.token(job_id), checkpoint, model, 1.0)

    def state(self, job_id: str) -> JobState:
        status = self.board.status(job_id)
        assert status is not None
        return status.state


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_training_pauses_at_once_for_interactive_work_that_would_wait_for_its_slice(
    cluster: Cluster,
) -> None:
    cluster.run("t", JobClass.BACKGROUND, kind="train")
    cluster.accept("urgent", JobClass.INTERACTIVE)
    cluster.look()
    assert cluster.report("t", step=3) is Verdict.PAUSE
    cluster.yields("t", 3)
    cluster.look()
    assert cluster.state("urgent") is JobState.LEASED
    assert cluster.pump.counters.preempted == 1


def test_both_jobs_are_told_why(cluster: Cluster) -> None:
    cluster.run("t", JobClass.BACKGROUND, kind="train")
    cluster.report("t", step=7)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    cluster.look()
    ran, waits = cluster.board.decisions("t")[0], cluster.board.decisions("urgent")[0]
    assert (ran.action, ran.pool) == ("preempt", POOL)
    assert ran.reason.startswith("makes room for interactive job urgent, which would have waited")
    assert ran.reason.endswith("it goes on later behind step 7")
    assert (waits.action, waits.pool) == ("wait", POOL)
    assert waits.reason.startswith("background train job t makes room for it on cpu@a; else it wai")
    assert waits.verdicts


@pytest.mark.parametrize(
    ("kind", "leaves"), [({"kind": "train"}, True), ({"max_tokens": 50}, False)]
)
def test_only_training_makes_room_for_what_could_start_at_once_in_a_much_slower_pool(
    cluster: Cluster, kind: dict[str, Any], leaves: bool
) -> None:
    """It waits for the fast pool, where it ends sooner; a pause costs the training nothing."""
    cluster.run("low", JobClass.BACKGROUND, **kind)
    cluster.publish("cpu@slow", tokens_per_s=0.1)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    cluster.look()
    assert cluster.state("urgent") is JobState.HELD
    assert cluster.board.running([POOL])[0].leaving is leaves


def test_work_that_starts_in_time_anyway_makes_nobody_leave(cluster: Cluster) -> None:
    cluster.run("short", JobClass.BATCH, max_tokens=1)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    cluster.look(0.0)
    assert not cluster.board.running([POOL])[0].leaving


def test_what_takes_longer_than_predicted_makes_room_once_the_patience_is_over(
    cluster: Cluster,
) -> None:
    cluster.run("short", JobClass.BATCH, max_tokens=1)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    for _ in range(3):
        cluster.look()
    assert cluster.board.running([POOL])[0].leaving


def test_work_of_the_same_class_waits_its_turn(cluster: Cluster) -> None:
    cluster.run("first", JobClass.INTERACTIVE)
    cluster.accept("second", JobClass.INTERACTIVE)
    for _ in range(5):
        cluster.look()
    assert not cluster.board.running([POOL])[0].leaving


def test_standard_work_waits_unless_the_terms_say_how_long() -> None:
    cluster = Cluster(Terms(patience_s={JobClass.STANDARD: 30.0}))
    cluster.run("long", JobClass.BATCH, max_tokens=200)
    cluster.accept("second", JobClass.STANDARD)
    cluster.look()
    assert not cluster.board.running([POOL])[0].leaving
    for _ in range(12):
        cluster.look(2.5)
        cluster.report("long", text="a ", tokens=(1,))
    assert cluster.board.running([POOL])[0].leaving


def test_by_default_only_interactive_work_has_others_leave(cluster: Cluster) -> None:
    cluster.run("long", JobClass.BACKGROUND, max_tokens=4000)
    cluster.accept("second", JobClass.STANDARD)
    for _ in range(3):
        cluster.look(2.5)
    assert not cluster.board.running([POOL])[0].leaving


def test_where_another_pool_is_free_nobody_leaves(cluster: Cluster) -> None:
    cluster.run("t", JobClass.BACKGROUND, kind="train")
    cluster.publish("gpu@a", engine=EngineName.GPU)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    cluster.look()
    assert cluster.state("urgent") is JobState.LEASED
    assert not cluster.board.running([POOL])[0].leaving


def test_one_job_in_need_makes_one_run_leave_however_often_the_pump_looks() -> None:
    cluster = Cluster()
    cluster.publish(slots=3)
    for job in ("a", "b", "c"):
        cluster.accept(job, JobClass.BATCH)
    cluster.look(slots=3)
    for job in ("a", "b", "c"):
        cluster.claim(job)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    for _ in range(6):
        cluster.look(slots=3)
    assert sum(one.leaving for one in cluster.board.running([POOL])) == 1


def test_a_slot_goes_to_whom_it_was_freed_for_and_not_back(cluster: Cluster) -> None:
    cluster.run("long", JobClass.BATCH)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    cluster.look()
    cluster.leave("long")
    cluster.accept("other", JobClass.BATCH)
    cluster.look()
    assert [one.id for one in cluster.board.running([POOL])] == ["urgent"]


def test_room_for_a_job_that_needs_more_is_kept_until_all_of_it_is_there() -> None:
    """Its cache comes from two runs; what the first one frees must not go back to it."""
    cluster = Cluster()
    fields = {"slots": 3, "kv_tokens_total": 272}
    cluster.publish(**fields)
    for job in ("a", "b"):
        cluster.accept(job, JobClass.BATCH)
    cluster.look(**fields)
    for job in ("a", "b"):
        cluster.claim(job)
    cluster.accept("urgent", JobClass.INTERACTIVE, max_tokens=250)
    cluster.look(**fields)
    assert [one.leaving for one in cluster.board.running([POOL])] == [True, True]
    cluster.leave("a")
    cluster.look(**fields)
    assert cluster.state("a") is JobState.HELD
    cluster.leave("b")
    cluster.look(**fields)
    assert cluster.state("urgent") is JobState.LEASED


def test_room_is_not_kept_for_a_job_that_is_gone(cluster: Cluster) -> None:
    cluster.run("long", JobClass.BATCH)
    cluster.accept("urgent", JobClass.INTERACTIVE)
    cluster.look()
    cluster.leave("long")
    cluster.board.cancel("urgent")
    cluster.look()
    assert cluster.state("long") is JobState.LEASED


def test_a_job_is_preempted_so_often_in_a_row_and_then_ends(cluster: Cluster) -> None:
    cluster.accept("long", JobClass.BATCH)
    preempted = 0
    for number in range(PREEMPTIONS_IN_A_ROW + 2):
        cluster.look()
        cluster.claim("long")
        urgent = f"urgent-{number}"
        cluster.accept(urgent, JobClass.INTERACTIVE)
        cluster.look()
        if not cluster.board.running([POOL])[0].leaving:
            break
        preempted += 1
        cluster.leave("long")
        cluster.look()
        cluster.claim(urgent)
        cluster.board.cancel(urgent)
        cluster.leave(urgent)
    assert preempted == PREEMPTIONS_IN_A_ROW


def test_where_training_comes_first_interactive_work_waits_for_it() -> None:
    cluster = Cluster(TRAINING_FIRST)
    cluster.run("t", JobClass.BACKGROUND, kind="train")
    cluster.accept("urgent", JobClass.INTERACTIVE)
    for _ in range(5):
        cluster.look()
    assert cluster.report("t", step=3) is Verdict.GO_ON


@pytest.mark.parametrize("terms", [RESPONSE_FIRST, TRAINING_FIRST])
def test_hard_memory_pressure_stops_training_whatever_the_profile(terms: Terms) -> None:
    cluster = Cluster(terms)
    cluster.run("t", JobClass.BATCH, kind="train")
    cluster.look(0.6, pressure=Pressure.HARD)
    cluster.look(0.6, pressure=Pressure.HARD)
    assert cluster.report("t", step=3) is Verdict.FREE
    assert "memory runs out" in cluster.board.decisions("t")[0].reason
    cluster.yields("t", 3)
    cluster.look(0.6, pressure=Pressure.HARD)
    assert cluster.state("t") is JobState.HELD


def test_where_nobody_can_be_asked_pools_are_looked_into_ten_times_a_second(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    real = cluster.board.running
    cluster.run("first", JobClass.INTERACTIVE)
    cluster.accept("second", JobClass.INTERACTIVE)
    monkeypatch.setattr(cluster.board, "running", lambda pools: asked.append(pools) or real(pools))
    for _ in range(100):
        cluster.look(0.01)
    assert 9 <= len(asked) <= 10


def test_nobody_looks_into_pools_while_nobody_is_blocked(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    real = cluster.board.running
    monkeypatch.setattr(cluster.board, "running", lambda pools: asked.append(pools) or real(pools))
    for number in range(20):
        cluster.accept(f"b{number}", JobClass.BATCH)
    for _ in range(4):
        cluster.look()
    assert asked == []


def test_who_ends_sooner_by_waiting_than_in_a_free_pool_is_not_blocked(cluster: Cluster) -> None:
    cluster.run("long", JobClass.BATCH)
    slow = {"engine": EngineName.GPU, "tokens_per_s": 0.5}
    cluster.accept("urgent", JobClass.INTERACTIVE)
    for _ in range(3):
        cluster.publish("gpu@a", **slow)
        cluster.look()
    assert cluster.state("urgent") is JobState.HELD
    assert not cluster.board.running([POOL])[0].leaving


def test_what_left_does_not_go_back_while_more_is_to_leave_for_a_job_that_may_go_elsewhere() -> (
    None
):
    """By waiting it would go to the other pool, so no look reserves anything here for it."""
    cluster = Cluster()
    here = {"slots": 3, "kv_tokens_total": 2064, "tokens_per_s": 50.0}
    there = {"engine": EngineName.GPU, "tokens_per_s": 60.0}
    cluster.publish(**here)
    for job in ("a", "b"):
        cluster.accept(job, JobClass.BATCH, max_tokens=1000, engine="cpu")
    cluster.look(**here)
    for job in ("a", "b"):
        cluster.claim(job)
    cluster.publish("gpu@a", **there)
    cluster.accept("busy", JobClass.INTERACTIVE, max_tokens=600, engine="gpu")
    cluster.look(**here)
    cluster.accept("urgent", JobClass.INTERACTIVE, max_tokens=1100)
    cluster.look(**here)
    assert "gpu@a" in cluster.board.decisions("urgent")[0].reason
    assert [one.leaving for one in cluster.board.running([POOL])] == [True, True]
    cluster.leave("a")
    for _ in range(3):
        cluster.publish("gpu@a", **there)
        cluster.look(**here)
        assert cluster.state("a") is JobState.HELD
    cluster.leave("b")
    cluster.look(**here)
    assert cluster.state("urgent") is JobState.LEASED
