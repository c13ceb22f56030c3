"""Sentence → who waits → in which order they are served."""

from dataclasses import dataclass, field

import pytest

from noidle.jobs import JobClass
from routing.board import HeldJob
from routing.order import Serving, Turns, in_order
from tests.unit.routing.builders import NOW_MS, make_job

STANDARD, BATCH = JobClass.STANDARD, JobClass.BATCH


def job(
    name: str, job_class: JobClass = STANDARD, waited_s: float = 1.0, **fields: object
) -> HeldJob:
    since_ms = NOW_MS - int(waited_s * 1000)
    values = {"accepted_ms": since_ms, "held_since_ms": since_ms, "job_class": job_class}
    return make_job(id=name, **(values | fields))


@dataclass
class Case:
    sentence: str
    jobs: list[HeldJob]
    wanted: str
    serving: Serving = field(default_factory=dict)
    room: int = 1
    weights: dict[str, float] = field(default_factory=dict)
    warm: dict[str, frozenset[str]] = field(default_factory=dict)


CASES = [
    Case(
        "classes come one after the other, and within one who came first",
        [
            job("late", waited_s=1),
            job("early", waited_s=2),
            job("someday", JobClass.BACKGROUND, 99),
            job("now", JobClass.INTERACTIVE, 0),
        ],
        "now early late someday",
    ),
    Case(
        "what waited ten minutes counts as one class higher",
        [job("fresh", BATCH, 5), job("old", JobClass.BACKGROUND, 601)],
        "old fresh",
    ),
    Case(
        "but never as what a person waits for",
        [job("old", JobClass.BACKGROUND, 1799), job("now", JobClass.INTERACTIVE, 0)],
        "now old",
    ),
    Case(
        "what starves goes before all, as many as there is room for",
        [
            job("now", JobClass.INTERACTIVE, 0),
            job("older", JobClass.BACKGROUND, 1900),
            job("oldest", BATCH, 2000),
        ],
        "oldest now older",
    ),
    Case(
        "without room for it, it waits in its place",
        [job("now", JobClass.INTERACTIVE, 0), job("oldest", JobClass.BACKGROUND, 2000)],
        "now oldest",
        room=0,
    ),
    Case(
        "a class is not inverted by a job that says it is old: held time counts, not its order",
        [job("now", JobClass.INTERACTIVE, 0), job("liar", BATCH, 1, order=-1e18, accepted_ms=0)],
        "now liar",
    ),
    Case(
        "labels of a class take turns, so that a flood starves nobody",
        [*(job(f"a{i}", label="a", waited_s=9 - i) for i in range(4)), job("b0", label="b")],
        "a0 b0 a1 a2 a3",
    ),
    Case(
        "a label that has less running goes first",
        [job("a0", label="a", waited_s=9), job("b0", label="b"), job("b1", label="b")],
        "b0 b1 a0",
        serving={(STANDARD, "a"): 3, (STANDARD, "b"): 0},
    ),
    Case(
        "what a label has running in another class does not count",
        [job("a0", label="a", waited_s=9), job("b0", label="b")],
        "a0 b0",
        serving={(BATCH, "a"): 3},
    ),
    Case(
        "a label of twice the weight has twice the turns",
        [
            *(job(f"a{i}", label="a") for i in range(4)),
            *(job(f"b{i}", label="b") for i in range(2)),
        ],
        "a0 a1 b0 a2 a3 b1",
        weights={"a": 2.0},
    ),
    Case(
        "nor does a label that has nothing running lift its jobs above a higher class",
        [job("now", JobClass.INTERACTIVE, 0, label="a"), job("liar", BATCH, 99, label="b")],
        "now liar",
        serving={(JobClass.INTERACTIVE, "a"): 50},
        weights={"b": 100.0},
    ),
    Case(
        "nor does a training that had no service yet",
        [
            job("batch", BATCH, 0),
            job("trained", JobClass.BACKGROUND, 9, kind="train", order=0.0, max_tokens=0),
        ],
        "batch trained",
    ),
    Case(
        "nor any number of jobs of a lower class that are older",
        [*(job(f"b{i}", BATCH, 500 - i) for i in range(3)), job("now", JobClass.INTERACTIVE, 0)],
        "now b0 b1 b2",
    ),
    Case(
        "jobs without a label share one turn",
        [job("x0", waited_s=9), job("x1", waited_s=8), job("a0", label="a", waited_s=1)],
        "x0 a0 x1",
    ),
    Case(
        "a deadline moves a job before those of its class that came later",
        [
            job("first", waited_s=700),
            job("second", waited_s=30),
            job("soon", deadline_ms=NOW_MS + 9000),
        ],
        "first soon second",
    ),
    Case(
        "the earliest deadline goes first",
        [job("later", deadline_ms=NOW_MS + 9000), job("sooner", deadline_ms=NOW_MS + 8000)],
        "sooner later",
    ),
    Case(
        "a deadline does not lift a job into another class",
        [job("soon", BATCH, deadline_ms=NOW_MS + 100), job("standard")],
        "standard soon",
    ),
    Case(
        "what some pool has in its cache goes sooner, by the share of its prompt",
        [
            job("first", waited_s=3),
            job("half", beginnings=((500, "x"),), prompt_bytes=1000),
            job("whole", beginnings=((500, "x"), (1000, "y")), prompt_bytes=1000),
        ],
        "whole half first",
        warm={"x": frozenset({"cpu@a"}), "y": frozenset({"cpu@a"})},
    ),
    Case(
        "but not before what waits for half a minute longer, nor before a higher class",
        [
            job("old", waited_s=32),
            job("warm", beginnings=((1000, "x"),), prompt_bytes=1000),
            job("now", JobClass.INTERACTIVE, 0),
        ],
        "now old warm",
        warm={"x": frozenset({"cpu@a"})},
    ),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.sentence.replace(" ", "_"))
def test_jobs_are_served_in_the_wanted_order(case: Case) -> None:
    turns = Turns(
        now_ms=NOW_MS,
        serving=case.serving,
        room=case.room,
        weights=case.weights,
        warm=case.warm,
    )
    assert [job.id for job in in_order(case.jobs, turns)] == case.wanted.split()
