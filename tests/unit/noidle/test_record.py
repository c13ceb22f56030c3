"""How stored fields become wire models."""

from noidle.jobs import JobClass
from noidle.record import STATUS_FIELDS, event_of, status_of
from noidle.results import JobState, StreamEvent


def values(**fields: str) -> list[str | None]:
    return [fields.get(name) for name in STATUS_FIELDS]


def test_no_record_has_no_status() -> None:
    assert status_of("a", values()) is None


def test_a_held_job_tells_what_it_waits_for() -> None:
    found = values(
        state="held", kind="generate", model="echo", accepted="12.750", **{"class": "batch"}
    )
    status = status_of("a", found, '{"job":"a","action":"wait","reason":"cpu is full"}')
    assert status is not None
    assert (status.state, status.job_class) == (JobState.HELD, JobClass.BATCH)
    assert (status.why, status.accepted_ms, status.goal) == ("cpu is full", 12, None)


def test_a_running_job_does_not_repeat_why_it_waited() -> None:
    found = values(state="running", kind="generate", model="echo", accepted="1")
    status = status_of("a", found, '{"job":"a","action":"wait","reason":"cpu is full"}')
    assert status is not None
    assert status.why is None


def test_progress_is_steps_for_training_and_tokens_else() -> None:
    common = {"state": "running", "model": "m", "accepted": "1", "goal": "100"}
    train = status_of("a", values(kind="train", step="7", loss="2.5", **common))
    generate = status_of("b", values(kind="generate", tokens="3", **common))
    assert train is not None
    assert generate is not None
    assert (train.progress, train.loss, train.goal) == (7, 2.5, 100)
    assert (generate.progress, generate.loss) == (3, None)


def test_a_job_that_was_refused_before_it_said_what_it_is_has_a_status() -> None:
    status = status_of("a", values(state="failed", accepted="1", why="kind = 3"))
    assert status is not None
    assert (status.kind, status.why) == ("unknown", "kind = 3")


def test_stream_entries_of_every_kind_are_understood() -> None:
    assert event_of({"t": "日", "k": "[1,2]"}) == StreamEvent(text="日", tokens=(1, 2))
    assert event_of({"k": "[]"}) == StreamEvent()
    progress = event_of({"s": "3", "g": "9", "l": "2.5", "v": "1e3"})
    assert progress == StreamEvent(step=3, goal=9, loss=2.5, tokens_per_s=1000.0)
    assert event_of({"end": "done"}) == StreamEvent(end=JobState.DONE)
