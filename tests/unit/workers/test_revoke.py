"""Celery's revoke, as the board's cancel."""

import pytest
from celery.worker import control

from noidle.jobs import parse_job
from tests.unit.workers.world import AwayBoard, World
from workers import revoke
from workers.mailbox import handling


class Unborn:
    def __init__(self):
        self.ids = []

    def remember(self, job_id):
        self.ids.append(job_id)


@pytest.fixture
def world():
    return World()


@pytest.fixture
def celerys(monkeypatch):
    """What Celery itself was asked to revoke."""
    asked = []
    monkeypatch.setattr(revoke, "_celery_revoke", lambda _, ids, **more: asked.append((ids, more)))
    before = dict(control.Panel.data)
    yield asked
    control.Panel.data.clear()
    control.Panel.data.update(before)


def command(name="revoke"):
    return control.Panel.data[name]


def test_known_jobs_are_cancelled_and_celery_remembers_none_of_them(world, celerys):
    unborn = Unborn()
    revoke.replace_revoke(world.board, unborn)
    held, _ = world.leased()
    running = world.claimed()
    command()(None, task_id=[held, running.job_id], terminate=True)
    assert world.state(held) == "cancelled"
    assert world.state(running.job_id) == "cancelling"
    # ended meanwhile, and still known
    command()(None, task_id=held)
    command("terminate")(None, "KILL", held)
    assert (unborn.ids, celerys) == ([], [])


class Message:
    def __init__(self, delivery_tag):
        self.delivery_tag = delivery_tag


def test_a_message_that_another_worker_obeyed_hits_no_job_sent_again(world, celerys):
    revoke.replace_revoke(world.board, None)
    job = {"kind": "generate", "id": "again", "model": "echo", "prompt": "p"}
    for tag, state in (("tag-1", "cancelled"), ("tag-1", "held"), ("tag-2", "cancelled")):
        world.board.accept(parse_job(job))
        with handling(Message(tag)):
            command()(None, task_id="again")
        assert world.state("again") == state


def test_an_id_that_nobody_knows_is_remembered_and_left_to_celery(world, celerys):
    unborn = Unborn()
    revoke.replace_revoke(world.board, unborn)
    command()(None, task_id="strange", terminate=True, signal="KILL")
    assert unborn.ids == ["strange"]
    # threads cannot be terminated
    assert celerys == [(["strange"], {"signal": "KILL", "terminate": False})]


def test_a_pool_leaves_unknown_ids_to_the_routers(world, celerys):
    revoke.replace_revoke(world.board, None)
    assert "ok" in command()(None, task_id="strange")
    assert celerys == []


def test_a_redis_that_is_away_is_no_reason_to_die(world, celerys, caplog):
    unborn = Unborn()
    revoke.replace_revoke(AwayBoard(world.board, fails=1), unborn)
    command()(None, task_id="a-job")
    assert "is not cancelled" in caplog.text
    assert unborn.ids == []
