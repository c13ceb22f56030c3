"""Celery's worker, run inside a process that is noidle's own.

Owns what Celery's program does to a process and noidle does itself: signals, logging, titles.
Knows nothing of pools or routers."""

import logging
from collections.abc import Callable
from typing import Any

from celery import Celery
from celery.app import trace
from celery.apps.worker import Worker as CeleryWorker
from celery.worker import control, state

_QUIET = ("celery.app.trace", "celery.worker.strategy", "celery.redirected", "kombu")


class Worker(CeleryWorker):  # type: ignore[misc]  # celery has no types
    """Runs in the main thread until `end` is called."""

    def __init__(
        self,
        app: Celery,
        *,
        name: str,
        concurrency: int,
        prefetch: int,
        install_signals: Callable[[], None],
        shut_down: Callable[[], None],
        stopping: Callable[[], None],
    ) -> None:
        """
        Args:
            shut_down: begins an orderly end, for Celery's command of that name.
            stopping: called as the loop was left, for whatever reason, before threads are
                waited for.
        """
        self._install_signals = install_signals
        self._stopping = stopping
        control.Panel.register(name="shutdown")(_shutdown_command(shut_down))
        # a line a job would cost as much as the job
        for logger in _QUIET:
            logging.getLogger(logger).setLevel(logging.WARNING)
        super().__init__(
            app=app,
            hostname=name,
            pool="threads",
            concurrency=concurrency,
            prefetch_multiplier=max(1, prefetch // concurrency),
            without_mingle=True,
            without_gossip=True,
            quiet=True,
            loglevel="INFO",
        )

    def on_before_init(self, quiet: bool = False, **_: Any) -> None:
        # Celery warns a superuser here, because of pickle, which is off
        self.quiet = quiet
        trace.setup_worker_optimizations(self.app, self.hostname)

    def setup_logging(self, _colorize: bool | None = None) -> bool:
        return True

    def set_process_status(self, info: str) -> None: ...

    def install_platform_tweaks(self, _worker: Any) -> None:
        self._install_signals()

    def stop(self, in_sighandler: bool = False, exitcode: int | None = None) -> None:
        self._stopping()
        super().stop(in_sighandler=in_sighandler, exitcode=exitcode)

    def stop_consuming(self) -> None:
        """From any thread: no message is taken from now on."""
        consumer = self.consumer
        if consumer is None or self.hub is None:
            return
        for queue in list(self.app.amqp.queues.consume_from):
            self.hub.call_soon(_cancel, consumer, queue)

    def end(self) -> None:
        """From any thread: the worker leaves its loop, waits for its threads, and returns."""
        if self.consumer is not None and self.consumer.event_dispatcher is not None:
            self.consumer.event_dispatcher.flush()
        state.should_stop = 0
        if self.hub is not None:
            self.hub.call_soon(_nothing)


def _cancel(consumer: Any, queue: str) -> None:
    # while no connection is there, nothing is consumed either; the queue must not come back
    if consumer.task_consumer is None or consumer.connection is None:
        consumer.app.amqp.queues.deselect(queue)
    else:
        consumer.cancel_task_queue(queue)


def _nothing() -> None: ...


def _shutdown_command(shut_down: Callable[[], None]) -> Callable[..., dict[str, str]]:
    def shutdown(_state: Any, **_: Any) -> dict[str, str]:
        """Finish or hand back what runs, then end."""
        shut_down()
        return {"ok": "ends in order"}

    return shutdown
