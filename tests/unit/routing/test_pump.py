"""The pump over the board in memory, on a clock that tests move."""

import base64
import json
import threading
from collections.abc import Callable

import pytest

from noidle.errors import ClusterUnavailable
from noidle.jobs import EngineName, JobClass, parse_job
from noidle.profile import ProfileName
from noidle.results import JobResult, JobState
from noidle.snapshot import ModelInfo, PoolState, Pressure
from routing.board import Claim, HeldJob
from routing.bounds import HEADS_A_CLASS
from routing.envelope import Envelope
from routing.memory_board import MemoryBoard
from routing.pump import DEEP_S, HEADS, LINKS_A_LOOK, Pump
from tests.unit.routing.builders import make_pool


class Clock:
    def __init__(self) -> None:
        self.now_s = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now_s


class Cluster:
    """A board, a pump, and pools that are moved by hand."""

    def __init__(self, links: "SentLinks | None" = None) -> None:
        self.clock = Clock()
        self.board = MemoryBoard(clock=self.clock)
        self.board.register(ModelInfo(name="echo", revision="built-in"))
        self.pump = Pump(self.board, "router@a", links=links, clock=self.clock)

    def publish(self, pool: str = "cpu@a", **fields: object) -> None:
        values = {"models": ("echo",), "loaded": ("echo",), "storage": None, "published_ms": 0}
        self.board.publish(make_pool(pool, **(values | fields)))

    def accept(self, job_id: str, envelope: Envelope | None = None, **fields: object) -> None:
        job = {"kind": "generate", "id": job_id, "model": "echo", "prompt": "p", "max_tokens": 10}
        assert self.board.accept(parse_job(job | fields), envelope)

    def later(self, seconds: float, **pool: object) -> None:
        """Time passes and the pool says it is still there."""
        self.clock.now_s += seconds
        self.publish(**pool)

    def state(self, job_id: str) -> JobState | None:
        status = self.board.status(job_id)
        return status.state if status else None

    def claim(self, queue: str, pool: str = "cpu@a") -> tuple[Claim, str]:
        """What a worker does with the next message."""
        message = self.board.pop(queue)
        assert message is not None
        fields = json.loads(message)
        _, kwargs, _ = json.loads(base64.b64decode(fields["body"]))
        claim = self.board.claim(fields["headers"]["id"], kwargs["lease"], pool, pid=1)
        assert isinstance(claim, Claim)
        return claim, kwargs["lease"]

    def finish(self, queue: str) -> str:
        claim, token = self.claim(queue)
        done = JobResult(id=claim.job.id, state=JobState.DONE, text="", tokens=())
        assert self.board.finish(claim.job.id, token, done)
        return claim.job.id


class SentLinks:
    def __init__(self) -> None:
        self.sent: list[str] = []
        self.broken = False

    def send(self, result: JobResult, envelope: Envelope) -> None:
        if self.broken:
            raise ClusterUnavailable("away")
        self.sent.append(result.id)


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def test_a_held_job_is_leased_and_its_message_lies_in_the_engines_queue(cluster: Cluster) -> None:
    cluster.publish()
    cluster.accept("job-1")
    assert cluster.pump.look() is False, "nothing is hidden behind one job"
    assert cluster.state("job-1") is JobState.LEASED
    assert cluster.finish("cpu") == "job-1"
    assert cluster.pump.counters.leased == 1


def test_a_slow_pool_serves_the_far_end_of_a_long_row(cluster: Cluster) -> None:
    """It stayed idle behind thousands of jobs, since none of the first ones wanted it."""
    # a job takes 1 s there and 50 s here: the first fifty do better to wait
    cluster.publish("cuda@a")
    cluster.publish("cpu@a", tokens_per_s=0.2)
    for number in range(HEADS_A_CLASS):
        cluster.accept(f"job-{number}")
    for _ in range(4):
        cluster.pump.look()
        cluster.later(DEEP_S, tokens_per_s=0.2)
        cluster.publish("cuda@a")
    assert {pool: load.in_flight for pool, load in cluster.board.loads().items()} == {
        "cuda@a": 1,
        "cpu@a": 1,
    }
    claim, _ = cluster.claim("cpu")
    assert int(claim.job.id.removeprefix("job-")) >= HEADS


def test_a_slow_pool_stays_free_where_waiting_for_the_fast_one_is_better(cluster: Cluster) -> None:
    cluster.publish("cuda@a")
    cluster.publish("cpu@a", tokens_per_s=0.2)
    for number in range(HEADS):
        cluster.accept(f"job-{number}")
    for _ in range(4):
        cluster.pump.look()
        cluster.later(DEEP_S, tokens_per_s=0.2)
        cluster.publish("cuda@a")
    assert set(cluster.board.loads()) == {"cuda@a"}


def test_the_decision_is_kept_in_words(cluster: Cluster) -> None:
    cluster.publish()
    cluster.accept("job-1")
    cluster.pump.look()
    (decision,) = cluster.board.decisions("job-1")
    assert (decision.action, decision.pool, decision.queue) == ("lease", "cpu@a", "cpu")
    assert "the only pool" in decision.reason
    assert decision.verdicts[0].outcome == "chosen"


def test_nothing_to_do_is_said_so_that_the_pump_may_wait(cluster: Cluster) -> None:
    cluster.publish()
    assert cluster.pump.look() is False


def test_without_the_role_nothing_is_decided(cluster: Cluster) -> None:
    assert cluster.board.take_pump("another@b")
    cluster.publish()
    cluster.accept("job-1")
    assert cluster.pump.look() is None
    assert cluster.state("job-1") is JobState.HELD


def test_a_role_that_another_router_took_is_noticed(cluster: Cluster) -> None:
    cluster.publish()
    assert cluster.pump.look() is False
    cluster.clock.now_s += 4
    assert cluster.board.take_pump("another@b")
    cluster.publish()
    cluster.accept("job-1")
    assert cluster.pump.look() is None
    assert cluster.state("job-1") is JobState.HELD


def test_free_slots_behind_the_heads_of_a_set_are_filled_by_further_looks(
    cluster: Cluster,
) -> None:
    cluster.publish(slots=100)
    for number in range(100):
        cluster.accept(f"job-{number}")
    looks = 0
    while cluster.pump.look():
        looks += 1
    assert cluster.pump.counters.leased == 100
    assert looks < 10


@pytest.mark.parametrize("others", [0, 1, 8, 15, 16, 17, 20])
def test_a_long_set_between_short_ones_is_looked_behind(cluster: Cluster, others: int) -> None:
    cluster.publish(slots=200)
    for number in range(others):
        # each size and each wish makes a set of its own
        wish = {"engine": "cpu"} if number % 2 else {}
        cluster.accept(f"other-{number}", max_tokens=16 << number // 2, **wish)
    for number in range(60):
        cluster.accept(f"job-{number}")
    while cluster.pump.look():
        pass
    assert cluster.pump.counters.leased == 60 + others


def test_the_slots_are_never_exceeded(cluster: Cluster) -> None:
    cluster.publish(slots=3)
    for number in range(20):
        cluster.accept(f"job-{number}")
    while cluster.pump.look():
        pass
    assert cluster.board.loads()["cpu@a"].in_flight == 3
    cluster.finish("cpu")
    while cluster.pump.look():
        pass
    assert cluster.board.loads()["cpu@a"].in_flight == 3


@pytest.mark.parametrize(
    "trouble",
    [{"pressure": Pressure.HARD}, {"state": PoolState.DRAINING}],
    ids=["pressure", "draining"],
)
def test_a_pool_in_trouble_gets_nothing_though_another_of_its_engine_is_free(
    cluster: Cluster, trouble: dict[str, object]
) -> None:
    cluster.publish("cpu@a", **trouble)
    cluster.publish("cpu@b", tokens_per_s=1)
    cluster.accept("job-1")
    cluster.pump.look()
    assert cluster.board.loads().keys() == {"cpu@b"}
    assert cluster.board.pop("cpu") is None
    assert cluster.board.pop("cpu@b") is not None


def test_a_pool_that_fell_silent_may_still_read_the_engines_queue(cluster: Cluster) -> None:
    """Its snapshot is gone after three seconds, its consumer perhaps not."""
    cluster.publish("cpu@a")
    cluster.publish("cpu@b")
    cluster.pump.look()
    cluster.later(5, pool="cpu@b")
    cluster.accept("job-1")
    cluster.pump.look()
    assert cluster.board.pop("cpu") is None
    assert cluster.board.pop("cpu@b") is not None


def test_after_a_minute_it_may_not(cluster: Cluster) -> None:
    cluster.publish("cpu@a")
    cluster.publish("cpu@b")
    cluster.pump.look()
    cluster.later(61, pool="cpu@b")
    cluster.accept("job-1")
    cluster.pump.look()
    assert cluster.board.pop("cpu") is not None


def test_a_job_that_no_pool_can_run_fails_with_the_reasons_after_the_limit(
    cluster: Cluster,
) -> None:
    cluster.publish()
    cluster.accept("job-1", engine="cuda")
    cluster.pump.look()
    cluster.later(59)
    cluster.pump.look()
    assert cluster.state("job-1") is JobState.HELD
    cluster.later(2)
    cluster.pump.look()
    result = cluster.board.result("job-1")
    assert result
    assert result.error
    assert result.error.code == "unplaceable"
    assert "cpu@a the job wants engine cuda, this is cpu" in result.error.message


def test_a_deadline_that_cannot_be_met_fails_at_once_with_what_was_predicted(
    cluster: Cluster,
) -> None:
    cluster.publish()
    cluster.accept("job-1", deadline_s=0.5)
    cluster.pump.look()
    result = cluster.board.result("job-1")
    assert result
    assert result.error
    assert result.error.code == "deadline"
    assert "the best pool, cpu@a, would end it in 1.00 s" in result.error.message


def test_all_jobs_of_a_hopeless_requirement_fail_together(cluster: Cluster) -> None:
    """Only the first 32 of a set are seen at a time; those behind have waited as long."""
    cluster.publish()
    for number in range(100):
        cluster.accept(f"job-{number}", engine="cuda")
    cluster.pump.look()
    cluster.later(61)
    for _ in range(4):
        cluster.pump.look()
    assert cluster.pump.counters.failed == 100


def test_a_pool_that_is_away_for_a_moment_fails_nobody(cluster: Cluster) -> None:
    cluster.publish("cpu@a", slots=1)
    cluster.publish("cuda@a", slots=1, kinds=("score",))
    cluster.accept("job-1")
    cluster.accept("job-2")
    cluster.pump.look()
    # job-2 has waited far longer than the limit when its pool goes
    for _ in range(30):
        cluster.later(4, pool="cpu@a")
        cluster.pump.look()
    assert cluster.board.loads()["cpu@a"].in_flight == 1
    cluster.board.leave("cpu@a")
    cluster.later(1, pool="cuda@a", kinds=("score",))
    cluster.pump.look()
    assert [cluster.state("job-1"), cluster.state("job-2")].count(JobState.FAILED) == 0


def test_without_any_pool_a_job_waits_for_one(cluster: Cluster) -> None:
    cluster.accept("job-1")
    for _ in range(5):
        cluster.clock.now_s += 50
        cluster.pump.look()
    assert cluster.state("job-1") is JobState.HELD
    cluster.later(0.25)
    cluster.pump.look()
    assert cluster.state("job-1") is JobState.LEASED


def test_a_waiting_job_says_what_it_waits_for_once_it_waits_a_while(cluster: Cluster) -> None:
    cluster.publish()
    cluster.accept("job-1")
    cluster.accept("job-2")
    cluster.pump.look()
    assert cluster.board.decisions("job-2") == []
    cluster.later(1)
    cluster.pump.look()
    (decision,) = cluster.board.decisions("job-2")
    assert decision.action == "wait"
    assert decision.pool == "cpu@a"
    assert "all slots are taken" in decision.reason


def test_the_same_reason_is_not_noted_at_every_look(cluster: Cluster) -> None:
    cluster.publish()
    cluster.accept("job-1")
    cluster.accept("job-2")
    for _ in range(4):
        cluster.pump.look()
        cluster.later(0.5)
    assert cluster.pump.counters.noted == 1
    cluster.publish(pressure=Pressure.HARD)
    cluster.clock.now_s += 0.5
    cluster.pump.look()
    assert cluster.pump.counters.noted == 2
    assert "pressure" in cluster.board.decisions("job-2")[0].reason


def test_an_ended_jobs_links_are_sent_once() -> None:
    links = SentLinks()
    cluster = Cluster(links)
    cluster.publish(slots=9)
    cluster.accept("job-1", Envelope(link=[{"task": "t"}]))
    cluster.accept("job-2")
    cluster.pump.look()
    cluster.finish("cpu")
    cluster.finish("cpu")
    cluster.pump.look()
    cluster.pump.look()
    assert links.sent == ["job-1"]


def test_more_links_than_one_look_sends_are_said_to_be_more_to_do() -> None:
    links = SentLinks()
    cluster = Cluster(links)
    cluster.publish(slots=99)
    for number in range(LINKS_A_LOOK + 1):
        cluster.accept(f"job-{number}", Envelope(link=[{"task": "t"}]))
    cluster.pump.look()
    for _ in range(LINKS_A_LOOK + 1):
        cluster.finish("cpu")
    assert cluster.pump.look() is True
    assert cluster.pump.look() is False
    assert len(links.sent) == LINKS_A_LOOK + 1


def test_links_that_could_not_be_sent_are_sent_later_and_hold_nobody_up() -> None:
    links = SentLinks()
    cluster = Cluster(links)
    cluster.publish()
    cluster.accept("job-1", Envelope(link=[{"task": "t"}]))
    cluster.pump.look()
    cluster.finish("cpu")
    links.broken = True
    cluster.accept("job-2")
    cluster.pump.look()
    assert cluster.state("job-2") is JobState.LEASED
    links.broken = False
    cluster.clock.now_s += 60
    cluster.pump.look()
    assert links.sent == ["job-1"]


def test_an_expired_lease_is_decided_anew(cluster: Cluster) -> None:
    cluster.publish()
    cluster.accept("job-1")
    cluster.pump.look()
    cluster.board.pop("cpu")
    for _ in range(5):
        cluster.later(3)
        cluster.pump.look()
    assert cluster.pump.counters.reaped >= 1
    assert cluster.pump.counters.leased >= 2
    assert cluster.board.pop("cpu") is not None


class FlakyBoard(MemoryBoard):
    """Fails its next calls of `held` with what it was given."""

    def __init__(self, faults: list[Exception], on_recovery: Callable[[], None]) -> None:
        super().__init__()
        self.faults = faults
        self.on_recovery = on_recovery

    def held(self, per_set: int) -> list[HeldJob]:
        if self.faults:
            raise self.faults.pop(0)
        self.on_recovery()
        return super().held(per_set)


@pytest.mark.parametrize(
    "fault", [ClusterUnavailable("away"), ValueError("a fault of ours")], ids=["redis", "fault"]
)
def test_the_pump_outlives_errors_and_tells_each_once(
    fault: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    stop = threading.Event()
    board = FlakyBoard([fault, fault], stop.set)
    pump = Pump(board, "router@a")
    pump.run(stop)
    assert pump.counters.errors == 2
    assert [record.message for record in caplog.records if record.levelname != "INFO"] == [
        f"held jobs wait{': away' if isinstance(fault, ClusterUnavailable) else ''}",
        "the pump goes on",
    ]


def test_a_pump_that_ends_lets_another_take_over_at_once() -> None:
    stop = threading.Event()
    board = FlakyBoard([], stop.set)
    Pump(board, "router@a").run(stop)
    assert board.take_pump("router@b") is not None


def test_an_urgent_job_is_leased_before_the_flood_and_before_jobs_that_fit_nowhere(
    cluster: Cluster,
) -> None:
    cluster.publish(slots=4)
    for number in range(3000):
        cluster.accept(f"flood-{number}", **{"class": JobClass.BACKGROUND})
    for number in range(40):
        cluster.accept(f"lost-{number}", engine=EngineName.CUDA, **{"class": JobClass.INTERACTIVE})
    while cluster.pump.look():
        pass
    # the flood leaves one slot free
    assert cluster.board.loads()["cpu@a"].in_flight == 3
    cluster.accept("urgent", **{"class": JobClass.INTERACTIVE})
    cluster.pump.look()
    assert cluster.state("urgent") is JobState.LEASED


def test_a_profile_is_followed_and_told(cluster: Cluster) -> None:
    cluster.publish()
    cluster.board.set_profile(ProfileName.TRAINING_FIRST)
    cluster.pump.look()
    told = cluster.board.told()
    assert told
    assert (told.router, told.profile) == ("router@a", "training_first")
    assert told.error_p50 is None


def test_weights_of_labels_are_followed(cluster: Cluster) -> None:
    cluster.publish(slots=3)
    cluster.board.set_weight("a", 2.0)
    cluster.pump.look()
    cluster.later(1, slots=3)
    for label in "aabb":
        cluster.accept(f"{label}-{len(cluster.board.jobs(9))}", label=label)
    cluster.pump.look()
    leased = [one.id for one in cluster.board.jobs(9) if one.state is JobState.LEASED]
    assert sorted(leased) == ["a-0", "a-1", "b-2"]


def test_how_far_predictions_were_off_is_told(cluster: Cluster) -> None:
    cluster.publish()
    cluster.accept("job-1")
    cluster.pump.look()
    cluster.later(3)
    cluster.finish("cpu")
    cluster.accept("job-2")
    cluster.pump.look()
    told = cluster.board.told()
    assert told
    assert told.runs == 1
    # 1 s was predicted
    assert told.error_p50 == pytest.approx(2 / 3, abs=0.01)
