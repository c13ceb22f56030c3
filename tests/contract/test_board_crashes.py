"""What the end of an engine or of a pool means for the jobs that ran there."""

from noidle.results import JobState
from noidle.snapshot import ModelInfo
from routing.board import Checkpoint, StepReport, Verdict
from tests.contract.board_world import POOL, Cluster, generate, snapshot, train

OTHER = "gpu@there"
MINI = ModelInfo(name="mini", revision="step-2", storage="disk-1", context=64)


def step(job_id: str, text: str = "", token: str = "", **fields: object) -> StepReport:
    tokens = tuple(range(len(text.split())))
    data = {"token": token or f"token-{job_id}", "text": text, "tokens": tokens}
    return StepReport(job=job_id, **{**data, **fields})


def report(cluster: Cluster, *steps: StepReport) -> dict[str, Verdict]:
    return cluster.board.report(POOL, list(steps))


def crashes(cluster: Cluster, job_id: str) -> tuple[int, bool]:
    """Lone crashes counted, and whether it must run alone."""
    status = cluster.board.status(job_id)
    assert status is not None
    (job,) = [job for job in cluster.board.held(32) if job.id == job_id]
    return status.crashes, job.alone


def test_a_crash_in_company_makes_suspects_and_counts_for_nobody(cluster: Cluster) -> None:
    cluster.accept(*map(generate, "abc"))
    for job in "abc":
        cluster.start(job)
    report(cluster, step("a", "x"))
    for job in "abc":
        cluster.board.hand_back(job, f"token-{job}", crashed=True)
    assert crashes(cluster, "a") == (0, False)
    assert crashes(cluster, "b") == (0, True)
    assert crashes(cluster, "c") == (0, True)


def test_a_suspect_runs_with_nothing_beside_it(cluster: Cluster) -> None:
    cluster.accept(*map(generate, "abc"))
    cluster.start("a")
    cluster.start("b")
    cluster.board.hand_back("a", "token-a", crashed=True)
    assert cluster.lease("a", "second") is False
    cluster.board.publish(snapshot(OTHER))
    assert cluster.lease("a", "second", pool=OTHER) is True
    assert cluster.board.loads()[OTHER].alone is True
    assert cluster.lease("c", pool=OTHER) is False
    assert cluster.lease("c") is True


def test_a_job_that_crashes_its_engine_alone_fails_at_the_limit(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    for crash in range(3):
        cluster.start("a", f"t{crash}")
        assert cluster.board.hand_back("a", f"t{crash}", crashed=True) is True
    result = cluster.board.result("a")
    assert result is not None
    assert result.error is not None
    assert (result.state, result.error.code, result.attempt) == (JobState.FAILED, "crashed", 3)
    assert "3 times" in result.error.message
    assert POOL in result.error.message


def test_a_poison_job_dies_alone_and_those_beside_it_do_not(cluster: Cluster) -> None:
    cluster.accept(generate("poison"), *[generate(f"good-{n}") for n in range(3)])
    tokens = iter(range(100))
    ended: set[str] = set()
    for _ in range(20):
        started = []
        for job in cluster.board.held(32):
            token = str(next(tokens))
            if cluster.lease(job.id, token):
                cluster.board.claim(job.id, token, POOL, 1)
                started.append((job.id, token))
        crashed = any(job == "poison" for job, _ in started)
        for job_id, token in started:
            if crashed:
                cluster.board.hand_back(job_id, token, crashed=True)
            else:
                cluster.finish(job_id, token)
                ended.add(job_id)
    assert ended == {"good-0", "good-1", "good-2"}
    result = cluster.board.result("poison")
    assert result is not None
    assert result.error is not None
    assert result.error.code == "crashed"


def test_a_crash_after_progress_does_not_count_but_not_for_ever(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    for crash in range(9):
        cluster.start("a", f"t{crash}")
        report(cluster, step("a", "x", token=f"t{crash}"))
        cluster.board.hand_back("a", f"t{crash}", crashed=True)
        assert crashes(cluster, "a") == (0, True)
    cluster.start("a", "last")
    report(cluster, step("a", "x", token="last"))
    cluster.board.hand_back("a", "last", crashed=True)
    assert cluster.state("a") is JobState.FAILED


def test_steps_that_a_crash_undid_are_no_progress_the_second_time(cluster: Cluster) -> None:
    cluster.accept(train("t"))
    for crash, counted in enumerate((0, 1, 2)):
        cluster.start("t", f"t{crash}")
        report(cluster, step("t", token=f"t{crash}", step=5))
        cluster.board.hand_back("t", f"t{crash}", crashed=True)
        assert crashes(cluster, "t") == (counted, True)


def test_a_slice_that_went_well_clears_a_training_of_suspicion(cluster: Cluster) -> None:
    cluster.accept(train("t"))
    cluster.start("t", "one")
    cluster.board.hand_back("t", "one", crashed=True)
    assert crashes(cluster, "t") == (1, True)
    cluster.start("t", "two")
    checkpoint = Checkpoint(name="step-2", storage="disk-1", step=2)
    cluster.board.yield_slice("t", "two", checkpoint, MINI, 1.0)
    assert crashes(cluster, "t") == (0, False)


def test_a_pool_that_died_counts_as_a_crash_of_what_it_had_claimed(cluster: Cluster) -> None:
    cluster.accept(*map(generate, "abc"))
    cluster.start("a")
    cluster.start("b")
    cluster.lease("c")
    assert set(cluster.lose()) == {"a", "b", "c"}
    assert crashes(cluster, "a") == (0, True)
    assert crashes(cluster, "b") == (0, True)
    assert crashes(cluster, "c") == (0, False)
    for token in ("t1", "t2", "t3"):
        assert cluster.state("a") is JobState.HELD
        cluster.start("a", token)
        cluster.lose()
    assert cluster.state("a") is JobState.FAILED
    assert cluster.board.loads() == {}


def test_a_run_whose_lease_ran_out_is_told_that_it_is_lost(cluster: Cluster) -> None:
    cluster.accept(generate("a"))
    cluster.start("a", "old")
    cluster.lose()
    assert report(cluster, step("a", "x", token="old")) == {"a": Verdict.LOST}
    assert cluster.finish("a", "old") is False
    cluster.start("a", "new")
    assert report(
        cluster,
        step("a", "x", token="old"),
    ) == {"a": Verdict.LOST}
    assert cluster.world.events("a") == []
