"""Interactive work takes the place of what can wait, on a real pool with the engine that computes:
it starts soon, and what made room ends as if nobody had come."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from engines.program import shipped
from noidle.handle import Job
from noidle.results import Decision, JobResult, JobState
from noidle.snapshot import ModelInfo, Pressure
from tests.acceptance.fleet import Fleet, state
from tests.integration.ops.commands import wait_for
from tests.valkey_process import ValkeyProcess

pytestmark = pytest.mark.alone

PATIENCE_S = 120.0
POOL = "cpu@here"
TEXT = "The cat sat on the mat, and the dog lay on the log. " * 80
# some 10 ms a token, some 0.1 s a training step of 8 × 64
SHAPE = {"layers": 4, "hidden": 128, "heads": 4, "kv_heads": 2, "vocabulary": 300, "context": 1024}
BURST = 3
STEPS = 60


@pytest.fixture(scope="module")
def memory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """How short the pool's memory is, as the test says in this file."""
    path = tmp_path_factory.mktemp("memory") / "pressure"
    path.write_text(Pressure.OK)
    return path


@pytest.fixture(scope="module")
def fleet(memory: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """One pool with one slot that computes in float32, a router, and a small model to ask."""
    server = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    server.start()
    fleet = Fleet(tmp_path_factory.mktemp("fleet"), server.url)
    try:
        fleet.router()
        fleet.told_pool(
            "cpu",
            0,
            TOLD_PRESSURE=str(memory),
            TOLD_PROGRAM=str(shipped("tensor")),
            NOIDLE_SLOTS="1",
            NOIDLE_THREADS="1",
            NOIDLE_DTYPE="float32",
        )
        fleet.wait_ready(POOL)
        train(fleet, "small", steps=2).result(timeout_s=PATIENCE_S)
        yield fleet
    finally:
        fleet.close()
        server.stop()


@pytest.fixture(scope="module")
def undisturbed(fleet: Fleet) -> Job:
    """A training that nobody comes between."""
    job = train(fleet, "whole", steps=STEPS)
    job.result(timeout_s=PATIENCE_S)
    return job


def train(fleet: Fleet, model: str, **fields: Any) -> Job:
    """In few slices, unless somebody makes it pause."""
    job = {"kind": "train", "model": model, "text": TEXT, "shape": SHAPE, "seed": 5}
    sizes = {"batch": 8, "sequence": 64, "warmup_steps": 2, "slice_s": 30}
    return fleet.client.submit({**job, **sizes, **fields})


def question(**fields: Any) -> dict[str, Any]:
    return {"kind": "generate", "model": "small", "prompt": "The cat", "seed": 7, **fields}


def ask(fleet: Fleet, **fields: Any) -> Job:
    return fleet.client.submit(question(**fields))


def burst(fleet: Fleet) -> list[JobResult]:
    """Some people ask at once, and get their answers."""
    urgent = question(max_tokens=4, **{"class": "interactive"})
    jobs = fleet.client.submit_many([urgent] * BURST)
    return [job.result(timeout_s=PATIENCE_S) for job in jobs]


def curve(job: Job) -> dict[int, float | None]:
    """The loss of each step that was told; none is told twice. Of steps that follow each other
    faster than pools report, the last is."""
    told = [event for event in job.events(timeout_s=PATIENCE_S) if event.step is not None]
    losses = {event.step: event.loss for event in told if event.step is not None}
    assert len(losses) == len(told)
    return losses


def learns_as(job: Job, other: Job) -> bool:
    """Equal losses at every step that both told, at least a third of them."""
    ours, theirs = curve(job), curve(other)
    both = ours.keys() & theirs.keys()
    assert len(both) >= STEPS // 3
    return all(ours[step] == theirs[step] for step in both)


def preemptions(fleet: Fleet, job: Job) -> list[Decision]:
    return [one for one in fleet.board.decisions(job.id) if one.action == "preempt"]


def moved(job: Job, progress: int) -> None:
    def far() -> bool:
        status = job.status()
        return status.state is JobState.RUNNING and status.progress >= progress

    wait_for(far, f"{job.id} to reach {progress}", PATIENCE_S)


def test_a_training_pauses_for_a_burst_and_ends_with_the_losses_of_an_undisturbed_one(
    fleet: Fleet, undisturbed: Job, report: Callable[[str], None]
) -> None:
    job = train(fleet, "paused", steps=STEPS)
    waits = []
    for step in (5, 15):
        moved(job, step)
        answers = burst(fleet)
        assert {answer.state for answer in answers} == {JobState.DONE}
        waits.append(answers[0].times.held_ms)
    result = job.result(timeout_s=PATIENCE_S)
    assert job.status().preemptions == len(preemptions(fleet, job)) >= 2
    assert job.status().crashes == 0
    assert learns_as(job, undisturbed)
    assert max(curve(job)) == STEPS
    assert result.train == undisturbed.outcome().train
    for one in preemptions(fleet, job):
        assert "makes room for interactive job" in one.reason
        assert "it goes on later behind step" in one.reason
    steps_ms = 1000 * step_s(fleet)
    told = " and ".join(f"{wait:.0f} ms" for wait in waits if wait is not None)
    report(f"from an interactive arrival to its slot, a training pausing for it: {told};")
    report(f"  of that up to one optimiser step, here {steps_ms:.0f} ms")


def step_s(fleet: Fleet) -> float:
    rate = fleet.snapshots()[POOL].rates.train_tokens_per_s
    return 8 * 64 / rate if rate else 0.0


def test_a_training_stops_where_memory_runs_out_and_goes_on_from_its_checkpoint(
    fleet: Fleet, undisturbed: Job, memory: Path
) -> None:
    job = train(fleet, "short", steps=STEPS)
    moved(job, 3)
    memory.write_text(Pressure.HARD)
    try:
        wait_for(lambda: state(job) is JobState.HELD, "a training that stopped", PATIENCE_S)
        assert "stops because memory runs out" in preemptions(fleet, job)[0].reason
    finally:
        memory.write_text(Pressure.OK)
    assert job.result(timeout_s=PATIENCE_S).attempt == 2
    assert learns_as(job, undisturbed)
    assert job.outcome().train == undisturbed.outcome().train


def test_text_that_makes_room_ends_with_the_output_of_an_undisturbed_one(
    fleet: Fleet, report: Callable[[str], None]
) -> None:
    fields = {"max_tokens": 700, "temperature": 1.0, "top_k": 20, "class": "batch"}
    undisturbed = ask(fleet, **fields).result(timeout_s=PATIENCE_S)
    job = ask(fleet, **fields)
    waits = []
    for tokens in (30, 300):
        moved(job, tokens)
        answers = burst(fleet)
        waits.append(answers[0].times.held_ms)
    result = job.result(timeout_s=PATIENCE_S)
    status = job.status()
    assert status.preemptions == len(preemptions(fleet, job)) > 0
    assert result.attempt == 1 + status.preemptions
    assert status.crashes == 0
    assert result.tokens == undisturbed.tokens
    assert result.text == undisturbed.text
    told = " and ".join(f"{wait:.0f} ms" for wait in waits if wait is not None)
    report(f"from an interactive arrival to its slot, a batch answer making room: {told}")


def test_people_who_ask_are_told_who_made_room_for_whom(fleet: Fleet) -> None:
    low = ask(fleet, max_tokens=900, **{"class": "batch"})
    moved(low, 5)
    urgent = ask(fleet, max_tokens=4, **{"class": "interactive"})
    urgent.result(timeout_s=PATIENCE_S)
    assert f"makes room for interactive job {urgent.id}" in str(fleet.client.job(low.id).explain())
    words = str(fleet.client.job(urgent.id).explain())
    assert f"batch generate job {low.id} makes room for it on {POOL}" in words
    low.cancel()


def test_nothing_of_its_own_class_or_below_makes_a_run_leave(fleet: Fleet) -> None:
    first = ask(fleet, max_tokens=300, **{"class": "interactive"})
    moved(first, 5)
    others = [ask(fleet, max_tokens=4, **{"class": one}) for one in ("interactive", "batch")]
    assert first.result(timeout_s=PATIENCE_S).attempt == 1
    for other in others:
        other.result(timeout_s=PATIENCE_S)
    assert preemptions(fleet, first) == []
    assert state(first) is JobState.DONE


def test_a_model_in_training_is_registered_once_it_has_paused(fleet: Fleet) -> None:
    job = train(fleet, "early", steps=4000)
    moved(job, 3)
    burst(fleet)
    info: ModelInfo = fleet.board.models()["early"]
    assert info.revision is not None
    assert not info.revision.startswith("step-000000")
    job.cancel()
