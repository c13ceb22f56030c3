"""Builds Flower's application and runs it until SIGTERM."""

import logging
import secrets
import signal
import sys
from dataclasses import dataclass

from celery import Celery
from flower.app import Flower
from flower.options import options
from flower.urls import settings as tornado_settings

from noidle.errors import ConfigError
from noidle.keys import ROUTE_QUEUE
from ops.flower_app.address import FLOWER_PORT, FLOWER_USER, MAX_TASKS
from ops.flower_app.handlers import REPLACED
from ops.valkey import LOOPBACK, port_is_free
from workers.app import Role, make_app
from workers.settings import Settings

_LOG = logging.getLogger(__name__)


_PURGE_AFTER_S = 30
# it asks eight kinds of question at a time; they wait for each other
_CONNECTIONS = 6


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowerOptions:
    """The few dials; everything else has one right value here."""

    password: str
    port: int = FLOWER_PORT
    address: str = LOOPBACK
    # jobs kept in memory; Flower's own default takes gigabytes
    max_tasks: int = MAX_TASKS


def build(app: Celery, chosen: FlowerOptions) -> Flower:
    """Flower for the cluster behind `app`, not yet listening.

    Raises:
        ConfigError: no password.
    """
    if not chosen.password:
        raise ConfigError("Flower needs a password", variable="password", allowed="any text")
    # Flower and Tornado keep options for the whole process
    options.basic_auth = [f"{FLOWER_USER}:{chosen.password}"]
    options.address = chosen.address
    options.port = chosen.port
    options.max_tasks = chosen.max_tasks
    options.persistent = False
    options.auto_refresh = True
    options.purge_offline_workers = _PURGE_AFTER_S
    options.cookie_secret = tornado_settings["cookie_secret"] = secrets.token_urlsafe(48)
    flower = Flower(options=options, capp=app, **tornado_settings)
    flower.add_handlers(r".*", list(REPLACED))
    return flower


def make_flower_app(settings: Settings) -> Celery:
    """Flower's own Celery application: it consumes no queue, but asks several things at once."""
    app = make_app(settings, Role.POOL, f"flower@{settings.host}", (ROUTE_QUEUE,))
    app.conf.broker_pool_limit = _CONNECTIONS
    app.conf.broker_transport_options["max_connections"] = _CONNECTIONS
    return app


def serve(settings: Settings, chosen: FlowerOptions) -> None:
    """Returns after SIGTERM or SIGINT.

    Raises:
        ConfigError: the port is taken.
    """
    if not port_is_free(chosen.port, chosen.address):
        raise ConfigError(
            f"port {chosen.port} on {chosen.address} is taken; name another with --port",
            variable="--port",
            value=str(chosen.port),
            allowed="a free port",
        )
    flower = build(make_flower_app(settings), chosen)
    signal.signal(signal.SIGTERM, _leave)
    signal.signal(signal.SIGINT, _leave)
    port = flower.start_http_server()
    _LOG.info("Flower listens on http://%s:%s", chosen.address, port, extra={"event": "flower_up"})
    try:
        flower.start()
    finally:
        flower.stop()


def _leave(*_: object) -> None:
    sys.exit(0)
