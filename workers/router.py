"""A router: a Celery worker that accepts jobs sent with Celery, and the pump beside it.

Owns the assembly and the order of start and end. What is decided, and when, is routing's; knows
nothing of engines."""

import logging
import os
import signal
import threading
from typing import Any

import redis
from celery import Celery
from celery.worker import state

from noidle import keys
from noidle.connection import connect
from routing.garbage import look_at_old_objects_seldom
from routing.links import Links, sender_of
from routing.pump import Pump
from routing.redis_board import RedisBoard
from routing.stray import StrayMessages
from workers.app import Role, make_app
from workers.intake import REQUEST, Intake
from workers.revoke import Unborn, replace_revoke
from workers.settings import Settings
from workers.worker import Worker

LOG = logging.getLogger("noidle.router")
THREADS = 4
PREFETCH = 16
PUMP_END_S = 5.0


def run_router(settings: Settings, name: str | None = None) -> int:
    """Runs in the main thread until a signal ends it; returns the exit status.

    Args:
        name: must differ from other routers'; absent: router@HOST.
    """
    name = name or f"router@{settings.host}"
    look_at_old_objects_seldom()
    # a thread each; the pump, which waits in one and asks in another; the links; revocations
    with connect(settings.url, max_connections=THREADS + 4) as client:
        return Router(settings, name, client).run()


class Router:
    """The parts of one router."""

    def __init__(self, settings: Settings, name: str, client: redis.Redis) -> None:
        self._closing = threading.Event()
        board = RedisBoard(client, lease_s=settings.lease_s)
        app = make_app(settings, Role.ROUTER, name, (keys.ROUTE_QUEUE,))
        unborn = Unborn(client)
        add_route_task(app, Intake(board, revoked_before=unborn.take, pause=self._closing.wait))
        replace_revoke(board, unborn)
        self._pump = Pump(board, name, links=Links(sender_of(app)), strays=StrayMessages(client))
        self._worker = Worker(
            app,
            name=name,
            concurrency=THREADS,
            prefetch=PREFETCH,
            install_signals=self._install_signals,
            shut_down=self._shut_down,
            stopping=self._closing.set,
        )

    def run(self) -> int:
        pump = threading.Thread(
            target=self._pump.run, args=(self._closing,), name="pump", daemon=True
        )
        pump.start()
        self._worker.start()
        self._closing.set()
        # what it does not end now, another router does
        pump.join(PUMP_END_S)
        return self._worker.exitcode or 0

    def _install_signals(self) -> None:
        for number in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
            signal.signal(number, self._stop)
        # a closed terminal ends a router that was started in it, unless by nohup
        if signal.getsignal(signal.SIGHUP) is not signal.SIG_IGN:
            signal.signal(signal.SIGHUP, self._stop)

    def _stop(self, number: int, _frame: object) -> None:
        """Messages under way are acknowledged first; a second signal leaves them to their
        visibility timeout."""
        if self._closing.is_set() or number == signal.SIGQUIT:
            os._exit(1)
        self._shut_down()

    def _shut_down(self) -> None:
        self._closing.set()
        state.should_stop = 0


def add_route_task(app: Celery, intake: Intake) -> None:
    """noidle.route: accepting twice is accepting once, so it is acknowledged last."""

    def route(task: Any, *args: Any, **fields: Any) -> None:
        request = task.request
        intake.take(request, args, fields)
        # else Celery would call them now, with this task's own result. (To raise Ignore would do
        # too, but prints its trace twice, which takes half of all the time of a message.)
        request.update(callbacks=None, errbacks=None, chain=None, chord=None)

    app.task(
        route,
        name=keys.ROUTE_TASK,
        bind=True,
        shared=False,
        acks_late=True,
        ignore_result=True,
        send_events=False,
        Request=REQUEST,
    )
