"""States and decisions in words."""

import pytest

from noidle.explanation import NO_ROUTER, Explanation, Row, state_in_words
from noidle.jobs import JobClass
from noidle.results import Decision, JobState, JobStatus, PoolGroup, PoolVerdict, Waited
from noidle.snapshot import RouterDetail


def make_status(state: JobState, **fields) -> JobStatus:
    values = {"id": "a", "kind": "generate", "model": "m", "job_class": JobClass.STANDARD}
    return JobStatus(**{**values, "state": state, **fields})


@pytest.mark.parametrize(
    ("status", "words"),
    [
        (make_status(JobState.HELD), "is held"),
        (make_status(JobState.HELD, why="every slot is taken"), "is held: every slot is taken"),
        (
            make_status(JobState.HELD, kind="train", progress=40, goal=200, loss=3.21, why="full"),
            "is held, 40 of 200 steps, loss 3.210: full",
        ),
        (
            make_status(JobState.LEASED, pool="cpu@a", attempt=1),
            "has a slot on cpu@a and has not started there yet",
        ),
        (
            make_status(JobState.RUNNING, pool="cpu@a", attempt=2, progress=3),
            "is running on cpu@a, attempt 2, 3 tokens",
        ),
        (
            make_status(JobState.HELD, kind="train", progress=40, preemptions=2, why="full"),
            "is held, made room 2 times, 40 steps: full",
        ),
        (
            make_status(JobState.RUNNING, pool="cpu@a", attempt=2, preemptions=1),
            "is running on cpu@a, attempt 2, made room once",
        ),
        (
            make_status(JobState.CANCELLING, pool="cpu@a"),
            "is cancelled and stops on cpu@a at its next step",
        ),
        (make_status(JobState.DONE, pool="cpu@a", attempt=1), "is done on cpu@a"),
        (make_status(JobState.FAILED, why="the engine fell"), "has failed: the engine fell"),
        (make_status(JobState.CANCELLED), "was cancelled"),
        (make_status(JobState.EXPIRED), "expired before it could start"),
    ],
    ids=lambda part: part.state if isinstance(part, JobStatus) else None,
)
def test_a_state_reads_as_the_end_of_a_sentence(status, words):
    assert state_in_words(status) == words


def test_an_explanation_shows_each_decision_with_every_pools_reason():
    verdicts = (
        PoolVerdict(pool="cuda@a", outcome="wait", reason="8 of 8 slots", finish_s=1.5),
        PoolVerdict(pool="gpu@a", outcome="refused", reason="memory pressure is hard"),
    )
    decisions = (
        Decision(job="a", at_ms=2_000, action="lease", pool="cuda@a", queue="cuda", reason="free"),
        Decision(job="a", at_ms=1_000, action="wait", reason="it pays", verdicts=verdicts),
    )
    shown = str(Explanation(status=make_status(JobState.RUNNING), decisions=decisions))
    assert shown.splitlines()[0] == "job a (generate) is running"
    assert ":02.000 to cuda@a (queue cuda): free" in shown
    assert ":01.000 wait: it pays" in shown
    assert "  cuda@a               wait      in 1.50 s  8 of 8 slots" in shown
    assert "  gpu@a                refused              memory pressure is hard" in shown


VERDICT = PoolVerdict(pool="cuda@a", outcome="wait", reason="8 of 8 slots", finish_s=1.5)
GROUPS = (
    PoolGroup(
        outcome="slower",
        reason="all slots are taken",
        count=37,
        start_from_s=0.8,
        start_to_s=3.2,
        finish_from_s=2.1,
        finish_to_s=9.4,
        pools=("cuda@b",),
    ),
    PoolGroup(outcome="refused", reason="is draining", count=1),
)


def decided(action: str, second: int, **fields) -> Decision:
    return Decision(job="a", at_ms=1000 * second, action=action, reason=f"why {second}", **fields)


def held(**fields) -> Explanation:
    return Explanation(**{"status": make_status(JobState.HELD), "decisions": (), **fields})


def test_pools_that_are_not_named_are_counted_with_what_keeps_the_job_from_them():
    lines = str(held(decisions=(decided("wait", 1, verdicts=(VERDICT,), rest=GROUPS),)))
    assert lines.splitlines()[-3:] == [
        "  cuda@a               wait      in 1.50 s  8 of 8 slots",
        "  37 more pools        slower   in 2.10 to 9.40 s  all slots are taken;"
        " 0.80 to 3.20 s until it could start",
        "  1 more pool          refused              is draining",
    ]


def test_pools_are_told_of_the_newest_decision_that_looked_at_them_and_of_no_other():
    decisions = (
        decided("preempt", 3),
        decided("lease", 2, pool="cuda@a", verdicts=(VERDICT,)),
        decided("wait", 1, verdicts=(VERDICT,), rest=GROUPS),
    )
    shown = str(held(decisions=decisions))
    assert shown.count("8 of 8 slots") == 1
    assert "37 more" not in shown
    assert [line.split(" ", 1)[1] for line in shown.splitlines() if "why" in line] == [
        "preempt: why 3",
        "to cuda@a: why 2",
        "wait: why 1",
    ]


def test_a_wait_is_told_by_what_it_was_for():
    shown = str(held(waited=Waited(held_s=3.2, causes={"full": 3.2})))
    assert "waited 3.20 s: 3.20 s all slots full" in shown.splitlines()


def test_a_job_far_behind_hears_of_the_first_that_asks_for_the_same():
    first = decided("wait", 1, verdicts=(VERDICT,))
    shown = str(held(row=Row(before=40, first="b", decisions=(first, decided("wait", 0)))))
    assert "40 jobs that ask for the same came before it" in shown
    assert "of the first, b:" in shown
    assert "8 of 8 slots" in shown
    assert "why 0" not in shown


def test_where_no_router_runs_that_is_said_with_what_to_do():
    assert NO_ROUTER in str(held(unheard=True))
    assert NO_ROUTER not in str(held())


def test_a_profile_that_makes_people_wait_is_said_where_somebody_waits():
    router = RouterDetail(router="r", profile="training_first", leased_per_s=1.0, retry_s=2.0)
    assert "noidle profile response_first" in str(held(router=router))
    running = Explanation(status=make_status(JobState.RUNNING), decisions=(), router=router)
    assert "profile" not in str(running)
    usual = router.model_copy(update={"profile": "response_first"})
    assert "profile" not in str(held(router=usual))


def test_as_json_nothing_is_left_out():
    first = decided("wait", 1, verdicts=(VERDICT,), rest=GROUPS)
    data = held(
        decisions=(first, first),
        waited=Waited(held_s=1.0),
        row=Row(before=2, first="b", decisions=(first,)),
    ).as_json()
    assert data["waited"]["held_s"] == 1.0
    assert (data["before"], data["first"], len(data["first_decisions"])) == (2, "b", 1)
    assert [one["rest"][0]["count"] for one in data["decisions"]] == [37, 37]
    assert data["decisions"][0]["rest"][0]["pools"] == ["cuda@b"]
