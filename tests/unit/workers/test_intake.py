"""How a job that came as a bare Celery message is read."""

from datetime import UTC, datetime
from types import SimpleNamespace

import pytest
from celery.exceptions import Reject

from noidle.jobs import EngineName
from tests.unit.workers.world import AwayBoard, World
from workers.intake import Intake

NOW = datetime(2026, 1, 1, 12, 0, 0, tzinfo=UTC)
JOB = {"kind": "generate", "model": "echo", "prompt": "p"}


@pytest.fixture
def world():
    return World()


def request(**fields):
    names = ("callbacks", "errbacks", "chain", "chord", "group", "group_index", "root_id")
    around = dict.fromkeys((*names, "parent_id", "eta", "expires"))
    return SimpleNamespace(**{"id": "j", "properties": {"delivery_tag": "d"}, **around, **fields})


def take(world, *args, board=None, kind=None, engine=None, about=None, revoked=(), **fields):
    intake = Intake(
        board or world.board,
        revoked_before=lambda job_id: job_id in revoked,
        pause=lambda _: False,
        now=lambda: NOW,
    )
    intake.take(about or request(), args, fields, kind=kind, engine=engine)
    return world.board.status("j").state


def test_a_job_is_one_object_or_its_fields(world):
    assert take(world, JOB) == "held"
    assert take(World(), **JOB) == "held"


@pytest.mark.parametrize(
    ("args", "fields", "options", "field", "allowed"),
    [
        ([], {}, {}, "kind", "generate or score or train"),
        (["x"], {}, {}, "job", "one object such as"),
        ([JOB, JOB], {}, {}, "job", "one object such as"),
        ([JOB], JOB, {}, "job", "one object such as"),
        ([{**JOB, "id": "k"}], {}, {}, "id", "absent, or the task's id 'j'"),
        ([{**JOB, "max_tokens": 0}], {}, {}, "max_tokens", "1"),
        ([JOB], {}, {"kind": "score"}, "kind", "score, as the task's name says"),
        (
            [{**JOB, "engine": "gpu"}],
            {},
            {"engine": EngineName.CPU},
            "engine",
            "cpu, as the queue says",
        ),
        ([JOB], {}, {"about": request(eta="2030-01-01")}, "eta", "absent"),
        ([JOB], {}, {"about": request(expires="tomorrow")}, "expires", "ISO 8601"),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_wrong_job_is_refused_with_field_value_and_what_is_allowed(
    world, args, fields, options, field, allowed
):
    assert take(world, *args, **options, **fields) == "failed"
    error = world.board.result("j").error
    assert (error.code, error.field) == ("invalid", field)
    assert allowed in error.allowed
    assert error.value is not None


def test_a_task_sent_to_an_engines_queue_wants_that_engine(world):
    score = {"model": "echo", "text": "t"}
    assert take(world, score, kind="score", engine=EngineName.CPU) == "held"
    [held] = world.board.held(8)
    assert (held.kind, held.engine) == ("score", "cpu")


@pytest.mark.parametrize(
    ("expires", "seconds"),
    [("2026-01-01T12:00:30+00:00", 30), ("2026-01-01T12:00:30", 30), ("2025-01-01", 0)],
)
def test_celerys_expires_is_the_jobs(world, expires, seconds):
    take(world, JOB, about=request(expires=expires))
    world.clock.now_s += seconds - 0.5
    if seconds:
        assert len(world.board.held(8)) == 1
    world.clock.now_s += 1
    assert world.board.held(8) == []
    assert world.state("j") == "expired"


def test_links_chain_chord_and_family_are_kept_for_the_end(world):
    about = request(
        callbacks=[{"task": "after"}],
        errbacks=[{"task": "sorry"}],
        chain=[{"task": "next"}],
        chord={"task": "all"},
        group="g",
        group_index=2,
        root_id="root",
        parent_id="parent",
    )
    take(world, {**JOB, "max_tokens": 0}, about=about)
    _, envelope = world.board.take_after()
    assert envelope.link == [{"task": "after"}]
    assert envelope.link_error == [{"task": "sorry"}]
    assert envelope.chain == [{"task": "next"}]
    assert (envelope.chord, envelope.group, envelope.group_index) == ({"task": "all"}, "g", 2)
    assert (envelope.root_id, envelope.parent_id) == ("root", "parent")


def test_a_message_that_comes_twice_is_one_job(world):
    take(world, JOB)
    world.board.cancel("j")
    assert take(world, JOB) == "cancelled"
    again = request(properties={"delivery_tag": "another"})
    assert take(world, JOB, about=again) == "held"


def test_an_id_revoked_before_its_job_came_ends_cancelled(world):
    assert take(world, JOB, revoked=["j"]) == "cancelled"


def test_a_closed_cluster_refuses_in_words(world):
    world.board.close("Redis uses 90 of its 100 MiB")
    assert take(world, JOB) == "failed"
    error = world.board.result("j").error
    assert error.code == "overloaded"
    assert "90 of its 100 MiB" in error.message


def test_a_fault_of_ours_is_a_result_too(world, caplog):
    class Faulty(AwayBoard):
        def accept(self, *_):
            raise ValueError("a fault")

    assert take(world, JOB, board=Faulty(world.board, 0)) == "failed"
    assert world.board.result("j").error.code == "internal"
    assert "could not be accepted" in caplog.text


def test_a_message_waits_for_redis(world):
    assert take(world, JOB, board=AwayBoard(world.board, fails=4)) == "held"


def test_a_process_that_ends_while_redis_is_away_leaves_the_message(world):
    intake = Intake(
        AwayBoard(world.board, fails=99),
        revoked_before=lambda _: False,
        pause=lambda _: True,
    )
    with pytest.raises(Reject):
        intake.take(request(), [JOB], {})
    assert world.board.status("j") is None
