"""States and decisions in words."""

import pytest

from noidle.explanation import Explanation, state_in_words
from noidle.jobs import JobClass
from noidle.results import Decision, JobState, JobStatus, PoolVerdict


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
