"""The repaired transport against a real server, without workers around it."""

import shutil
import threading
from contextlib import contextmanager, suppress
from multiprocessing import util

import pytest
import redis
from celery.worker import state
from kombu import Connection, Consumer, Exchange, Producer, Queue

from noidle import keys
from routing.message import LEASED_HEADER
from tests.integration.workers.processes import until
from tests.integration.workers.tls import TlsValkey
from workers.app import Role, make_app
from workers.settings import Settings

NAME = "router@test"
NOTES = keys.unacked("routers")


def connection(url, role=Role.ROUTER, name=NAME, **settings):
    app = make_app(Settings(url=url, **settings), role, name, (keys.ROUTE_QUEUE,))
    return app.connection_for_read()


def publish(url, body, queue=keys.ROUTE_QUEUE, **headers):
    with Connection(url) as plain:
        Producer(plain).publish(body, routing_key=queue, headers=headers, retry=True)


@contextmanager
def consumer(link, *queues):
    """What arrived, while the block runs."""
    arrived = []
    wanted = [Queue(name, exchange="", routing_key=name) for name in queues or (keys.ROUTE_QUEUE,)]
    with Consumer(link, wanted, callbacks=[lambda _, message: arrived.append(message)]):
        yield arrived


def take(link, arrived, count=1):
    def enough():
        link.drain_events(timeout=5)
        return len(arrived) >= count

    until(enough, f"{count} messages")


def test_a_message_is_in_a_list_of_the_taker_until_it_is_noted(valkey_url, valkey_client):
    seen = []
    with connection(valkey_url) as link, consumer(link) as arrived:
        channel = link.default_channel
        deliver = channel.connection._deliver

        def look(message, queue):
            seen.append(valkey_client.lrange(keys.taken(NAME), 0, -1))
            deliver(message, queue)

        channel.connection._deliver = look
        publish(valkey_url, "one")
        take(link, arrived)
        assert [len(items) for items in seen] == [1]
        assert not valkey_client.exists(keys.taken(NAME))
        assert valkey_client.hlen(NOTES) == 1
        arrived[0].ack()
        assert not valkey_client.exists(NOTES, f"{NOTES}:index")


def test_what_a_former_life_had_taken_comes_first_and_in_order(valkey_url, valkey_client):
    for body in ("one", "two", "three"):
        publish(valkey_url, body)
    for _ in range(2):
        valkey_client.lmove(keys.ROUTE_QUEUE, keys.taken(NAME), "RIGHT", "LEFT")
    with connection(valkey_url) as link, consumer(link) as arrived:
        take(link, arrived, 3)
        assert [message.payload for message in arrived] == ["one", "two", "three"]
        for message in arrived:
            message.ack()


def test_a_message_of_a_lease_is_not_noted(valkey_url, valkey_client):
    with connection(valkey_url, Role.POOL, "cpu@test") as link, consumer(link) as arrived:
        publish(valkey_url, "leased", **{LEASED_HEADER: True})
        publish(valkey_url, "by hand")
        take(link, arrived, 2)
        assert valkey_client.hlen(keys.unacked("cpu@test")) == 1
        for message in arrived:
            message.ack()
        assert not valkey_client.exists(keys.unacked("cpu@test"))


def test_an_acknowledgement_after_a_cut_goes_through_the_next_connection(valkey_url, valkey_client):
    with connection(valkey_url) as link, consumer(link) as arrived:
        publish(valkey_url, "one")
        take(link, arrived)
        with keep_in_hand(arrived):
            link.collect()
        assert valkey_client.hlen(NOTES) == 1
        arrived[0].ack()
    with connection(valkey_url) as link, consumer(link) as again:
        link.default_channel.qos.restore_visible(num=None, interval=1)
        assert not valkey_client.exists(NOTES, f"{NOTES}:index", keys.ROUTE_QUEUE)
        publish(valkey_url, "two")
        take(link, again)
        assert [message.payload for message in again] == ["two"]
        again[0].ack()


def test_a_cut_gives_back_only_what_nobody_works_on(valkey_url, valkey_client):
    with connection(valkey_url) as link, consumer(link) as arrived:
        publish(valkey_url, "in hand")
        publish(valkey_url, "waiting")
        take(link, arrived, 2)
        with keep_in_hand(arrived[:1]):
            link.collect()
        assert valkey_client.hlen(NOTES) == 1
        assert valkey_client.llen(keys.ROUTE_QUEUE) == 1


def test_a_connection_can_be_closed_while_redis_is_away_and_leaves_nothing(own_valkey):
    before = len(util._finalizer_registry)
    link = connection(own_valkey.url)
    box = Queue("box", Exchange("all", type="fanout"), auto_delete=True)
    with consumer(link) as arrived:
        Consumer(link.channel(), [box], callbacks=[lambda _, message: None]).consume()
        publish(own_valkey.url, "one")
        take(link, arrived)
        # so that it waits for an answer as Redis goes
        drain(link, 0.1)
        own_valkey.kill()
        link.collect()
        link.close()
        # a second time, as a worker does before it gives up
        link.close()
    # what is registered for the end of the process would keep the channel for ever
    assert len(util._finalizer_registry) == before


def test_what_is_not_acknowledged_comes_back_after_the_visibility_timeout(
    valkey_url, valkey_client
):
    link = connection(valkey_url, visibility_s=1)
    with consumer(link) as arrived:
        publish(valkey_url, "one")
        take(link, arrived)

    def back():
        link.default_channel.qos.restore_visible(num=None, interval=1)
        return valkey_client.llen(keys.ROUTE_QUEUE) == 1

    until(back, "the message is in its queue again")
    link.close()


def test_two_takers_never_get_the_same_message(valkey_url):
    arrived = []

    def run(name):
        with connection(valkey_url, name=name) as link, consumer(link) as mine:
            take(link, mine)
            ready.wait()
            drain(link)
            for message in mine:
                message.ack()
            arrived.extend(message.payload for message in mine)

    ready = threading.Barrier(2)
    threads = [threading.Thread(target=run, args=(f"router.{n}@test",)) for n in range(2)]
    for thread in threads:
        thread.start()
    for number in range(40):
        publish(valkey_url, number)
    for thread in threads:
        thread.join(30)
    assert sorted(arrived) == list(range(40))


@pytest.mark.skipif(shutil.which("openssl") is None, reason="no openssl to make a certificate")
def test_the_same_holds_over_tls_with_a_password(tmp_path):
    with TlsValkey(tmp_path) as server:
        url = f"{server.url}?ssl_ca_certs={server.certificate}"
        with connection(url) as link, consumer(link) as arrived:
            Producer(link).publish("secret", routing_key=keys.ROUTE_QUEUE)
            take(link, arrived)
            assert arrived[0].payload == "secret"
            arrived[0].ack()
            assert "hush" not in link.as_uri()
        # whose certificate nobody knows is not trusted
        with pytest.raises(redis.ConnectionError, match="CERTIFICATE_VERIFY_FAILED"):
            connection(server.url).connect()


def drain(link, idle_s=1):
    """Takes until nothing comes for a while."""
    with suppress(TimeoutError):
        while True:
            link.drain_events(timeout=idle_s)


@contextmanager
def keep_in_hand(messages):
    """As if the worker's threads had them."""

    class Request:
        def __init__(self, message):
            self.message = message

    requests = [Request(message) for message in messages]
    state.reserved_requests.update(requests)
    yield
    state.reserved_requests.difference_update(requests)
