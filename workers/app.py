"""The Celery applications of routers and pools: every Celery setting is made here.

Knows nothing of tasks, boards or engines."""

import ssl
from enum import StrEnum
from typing import Any
from urllib.parse import parse_qs, urlsplit

from celery import Celery
from celery.signals import setup_logging
from kombu import Exchange, Queue

from noidle import keys
from workers.settings import Settings

TRANSPORT = "workers.transport:Transport"
AMQP = "workers.reconnect:Amqp"
CONSUMER = "workers.consumer:Consumer"
CONTROL = "workers.mailbox:Control"
CONNECT_TIMEOUT_S = 3.0
SOCKET_TIMEOUT_S = 10.0


class Role(StrEnum):
    """What a worker process is for."""

    ROUTER = "router"  # consumes the route queue; routers share their notes
    POOL = "pool"  # consumes its engine's queue and its own


def make_app(settings: Settings, role: Role, name: str, queues: tuple[str, ...]) -> Celery:
    """An application for the worker `name` that consumes `queues`; no task is in it yet.

    It opens up to nine connections to Redis: two for consuming (one waits for messages, one
    notes and acknowledges), three for control commands (a check, the subscription, replies),
    two for events, and, only while a hand-sent message is passed on or a foreign task's
    revocation is stored, one each for sending and for results. What the board opens comes
    on top.
    """
    app = Celery(f"noidle-{role}", amqp=AMQP, control=CONTROL, set_as_current=False, fixups=[])
    app.conf.update(
        **_broker(settings, role, name),
        **_messages(queues),
        **_worker(role),
    )
    # the process sets up its own log; Celery writes into it
    setup_logging.connect(_leave_logging_alone)
    return app


def _leave_logging_alone(**_: Any) -> None: ...


def _broker(settings: Settings, role: Role, name: str) -> dict[str, Any]:
    notes = keys.unacked("routers" if role is Role.ROUTER else name)
    secure = _tls(settings.url)
    return {
        "broker_url": settings.url,
        "broker_transport": TRANSPORT,
        "broker_use_ssl": secure,
        "redis_backend_use_ssl": secure,
        "broker_transport_options": {
            "priority_steps": [0],
            "unacked_key": notes,
            "unacked_index_key": f"{notes}:index",
            "unacked_mutex_key": f"{notes}:mutex",
            # a worker may die with the lock
            "unacked_mutex_expire": 5,
            "visibility_timeout": settings.visibility_s,
            "unacked_restore_interval": 1,
            "unacked_restore_throttle": 1,
            "taken_key": keys.taken(name) if role is Role.ROUTER else None,
            "socket_timeout": SOCKET_TIMEOUT_S,
            "socket_connect_timeout": CONNECT_TIMEOUT_S,
            "socket_keepalive": True,
            "health_check_interval": 10,
            "max_connections": 8,
            "client_name": name.replace(" ", "-"),
        },
        # a worker outlives Redis: it asks again for ever
        "broker_connection_retry": True,
        "broker_connection_retry_on_startup": True,
        "broker_connection_max_retries": None,
        "broker_channel_error_retry": True,
        "broker_connection_timeout": CONNECT_TIMEOUT_S,
        "broker_heartbeat": 0,
        "broker_pool_limit": 2,
        "result_backend": settings.url,
        "result_backend_thread_safe": True,
        "redis_max_connections": 2,
        "redis_socket_timeout": SOCKET_TIMEOUT_S,
        "redis_socket_connect_timeout": CONNECT_TIMEOUT_S,
    }


def _messages(queues: tuple[str, ...]) -> dict[str, Any]:
    return {
        "accept_content": ["json"],
        "result_accept_content": ["json"],
        "task_serializer": "json",
        "result_serializer": "json",
        "event_serializer": "json",
        "task_protocol": 2,
        "task_queues": [
            Queue(queue, Exchange(queue, type="direct"), routing_key=queue) for queue in queues
        ],
        "task_default_queue": queues[-1],
        # the board writes results, in one step with the end of the job
        "task_ignore_result": True,
        "task_store_errors_even_if_ignored": False,
        "enable_utc": True,
        "timezone": "UTC",
    }


def _worker(role: Role) -> dict[str, Any]:
    return {
        "worker_pool": "threads",
        "worker_consumer": CONSUMER,
        "worker_prefetch_multiplier": 1,
        "worker_enable_prefetch_count_reduction": False,
        "worker_detect_quorum_queues": False,
        "worker_cancel_long_running_tasks_on_connection_loss": False,
        "worker_disable_rate_limits": True,
        "worker_hijack_root_logger": False,
        "worker_redirect_stdouts": False,
        # what Flower draws its rows from; routes would be rows that nobody asked for
        "worker_send_task_events": role is Role.POOL,
        "task_send_sent_event": False,
        "task_track_started": False,
    }


def _tls(url: str) -> dict[str, Any] | None:
    """Certificates are checked unless the address says otherwise in redis-py's `ssl_…` options."""
    parts = urlsplit(url)
    if parts.scheme != "rediss":
        return None
    options = {name: values[-1] for name, values in parse_qs(parts.query).items()}
    modes = {
        "none": ssl.CERT_NONE,
        "optional": ssl.CERT_OPTIONAL,
        "required": ssl.CERT_REQUIRED,
    }
    mode = options.pop("ssl_cert_reqs", "required").lower().removeprefix("cert_")
    files = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
    found = {name: options[name] for name in files if name in options}
    return {"ssl_cert_reqs": modes.get(mode, ssl.CERT_REQUIRED), **found}
