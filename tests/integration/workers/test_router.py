"""A router as a real process: what it takes, also from the dead, and how it ends."""

import json
import signal

import pytest

from noidle import keys
from tests.integration.workers.processes import until
from tests.integration.workers.producer import job, known, new_producer, send

ROUTER = "router@here"


@pytest.fixture
def app(valkey_url):
    with new_producer(valkey_url) as producer:
        yield producer


def settled(client):
    """No message waits or is under way."""
    return not client.exists("route", keys.taken(ROUTER), keys.unacked("routers"))


def test_messages_of_a_router_that_died_between_taking_and_noting_come_back(
    start, lender, app, valkey_client
):
    send(app, job(), task_id="own")
    send(app, job(), task_id="others")
    assert valkey_client.lmove("route", keys.taken(ROUTER), "RIGHT", "LEFT")
    assert valkey_client.lmove("route", keys.taken("gone@there"), "RIGHT", "LEFT")
    valkey_client.zadd(keys.TAKEN, {keys.taken("gone@there"): 1})
    start("router", ROUTER)
    known(lender, "own")
    known(lender, "others")
    until(lambda: settled(valkey_client), "nothing is left")
    assert not valkey_client.exists(keys.taken("gone@there"))


def test_messages_that_cannot_be_read_harm_no_router(start, lender, app, valkey_client):
    send(app, job(), task_id="good")
    good = json.loads(valkey_client.lindex("route", 0))
    for message in ({**good, "body": "W10="}, {**good, "headers": {}}, {}, [], 7):
        valkey_client.rpush("route", json.dumps(message))
    valkey_client.rpush("route", b"\x80")
    router = start("router", ROUTER)
    known(lender, "good")
    until(lambda: settled(valkey_client), "nothing is left")
    assert router.running()


def test_a_router_that_is_told_to_end_leaves_nothing_under_way(start, lender, app, valkey_client):
    router = start("router", ROUTER)
    for number in range(50):
        send(app, job(), task_id=f"flood-{number}", ignore_result=True)
    until(lambda: lender.board.status("flood-5"), "the router is in the middle")
    router.signal(signal.SIGTERM)
    assert router.wait() == 0
    accepted = sum(lender.board.status(f"flood-{number}") is not None for number in range(50))
    assert accepted + valkey_client.llen("route") == 50
    assert not valkey_client.exists(keys.taken(ROUTER), keys.unacked("routers"))
    assert lender.board.take_pump("next") is not None
