"""Celery's settings, which are all made in one place."""

import ssl

import pytest

from workers.app import Role, make_app
from workers.settings import Settings

URL = "redis://:secret@db:6379/2"


def app(role=Role.POOL, url=URL, name="cpu@here", queues=("cpu", "cpu@here")):
    return make_app(Settings(url=url, visibility_s=7), role, name, queues)


def test_nothing_but_json_is_accepted():
    conf = app().conf
    assert conf.accept_content == conf.result_accept_content == ["json"]
    assert conf.task_serializer == conf.result_serializer == conf.event_serializer == "json"


def test_a_worker_asks_for_redis_for_ever_and_soon():
    worker = app()
    assert worker.conf.broker_connection_retry
    assert worker.conf.broker_connection_retry_on_startup
    assert worker.conf.broker_connection_max_retries is None
    waits = {}

    class Patient(type(worker.connection_for_read())):
        def _ensure_connection(self, *args, **kwargs):
            waits.update(kwargs)

    Patient(URL, transport="workers.transport:Transport").ensure_connection(None, None)
    assert waits == {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 1.0}


def test_routers_share_their_notes_and_each_pool_has_its_own():
    options = [
        app(role, name=name).conf.broker_transport_options
        for role, name in (
            (Role.ROUTER, "router@a"),
            (Role.ROUTER, "router@b"),
            (Role.POOL, "cpu@a"),
            (Role.POOL, "cpu@b"),
        )
    ]
    notes = [each["unacked_key"] for each in options]
    assert notes[0] == notes[1] == "noidle:unacked:routers"
    assert len(set(notes)) == 3
    taken = [each["taken_key"] for each in options]
    assert taken == ["noidle:taken:router@a", "noidle:taken:router@b", None, None]
    assert {each["visibility_timeout"] for each in options} == {7}
    assert {each["unacked_restore_interval"] for each in options} == {1}
    assert {tuple(each["priority_steps"]) for each in options} == {(0,)}


def test_a_pool_consumes_its_engines_queue_and_its_own():
    assert [queue.name for queue in app().conf.task_queues] == ["cpu", "cpu@here"]


def test_pools_send_what_flower_draws_and_routers_do_not():
    assert app(Role.POOL).conf.worker_send_task_events
    assert not app(Role.ROUTER).conf.worker_send_task_events


def test_our_transport_is_named_and_its_address_hides_the_password():
    link = app().connection_for_read()
    assert type(link.transport).__module__ == "workers.transport"
    assert (link.hostname, link.password, link.virtual_host) == ("db", "secret", "2")
    assert link.as_uri() == "redis://:**@db:6379/2"


@pytest.mark.parametrize(
    ("query", "mode", "files"),
    [
        ("", ssl.CERT_REQUIRED, None),
        ("?ssl_ca_certs=/ca.pem", ssl.CERT_REQUIRED, "/ca.pem"),
        ("?ssl_cert_reqs=required&ssl_ca_certs=/ca.pem", ssl.CERT_REQUIRED, "/ca.pem"),
        ("?ssl_cert_reqs=CERT_NONE", ssl.CERT_NONE, None),
        ("?ssl_cert_reqs=none", ssl.CERT_NONE, None),
    ],
)
def test_a_rediss_address_is_tls_and_checks_certificates_unless_told_otherwise(query, mode, files):
    conf = app(url=f"rediss://:secret@db:6380/0{query}").conf
    for secure in (conf.broker_use_ssl, conf.redis_backend_use_ssl):
        assert secure["ssl_cert_reqs"] == mode
        assert secure.get("ssl_ca_certs") == files
    link = app(url=f"rediss://:secret@db:6380/0{query}").connection_for_read()
    assert link.ssl
    assert link.as_uri() == "rediss://:**@db:6380/0"


def test_a_redis_address_is_not_tls():
    assert not app().connection_for_read().ssl
