"""What Celery promises to do after a task, done for a job that ended: links, the rest of a
chain, its part of a chord, errbacks. Owns the sending; knows nothing of boards or pools.

It happens after the end is recorded, and twice where a router dies in between, as Celery itself
promises no more. A chord counts a part once, however often it is sent."""

import logging
from typing import Any

from celery import Celery
from celery.app.task import Context
from celery.backends.redis import RedisBackend
from celery.canvas import signature
from celery.exceptions import TaskRevokedError
from celery.states import FAILURE, REVOKED, SUCCESS
from kombu.exceptions import OperationalError
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import TimeoutError as RedisTimeoutError

from noidle import keys
from noidle.errors import ClusterUnavailable, InvalidJob, JobFailed
from noidle.results import JobResult, JobState
from routing.envelope import Envelope
from routing.outcome import failure

LOG = logging.getLogger("noidle.links")
_CONNECTION = (
    "broker_url",
    "broker_transport",
    "broker_transport_options",
    "broker_use_ssl",
    "broker_connection_timeout",
    "redis_backend_use_ssl",
    "redis_max_connections",
    "redis_socket_timeout",
    "redis_socket_connect_timeout",
)


class QuietBackend(RedisBackend):  # type: ignore[misc]  # celery has no types
    """Celery's Redis backend for one who never waits for a result: each send would subscribe to
    a channel that nobody reads."""

    def on_task_call(self, producer: Any, task_id: str) -> None:
        """Nothing to prepare."""


def sender_of(router: Celery) -> Celery:
    """An application that sends as a plain producer would, over the router's connections: the
    router's own would put a callback that names no queue into the route queue."""
    app = Celery("noidle-links", set_as_current=False, fixups=[])
    app.conf.update({name: router.conf[name] for name in _CONNECTION})
    app.conf.update(
        result_backend=f"{__name__}:QuietBackend+{router.conf.result_backend}",
        accept_content=["json"],
        result_accept_content=["json"],
        task_serializer="json",
        result_serializer="json",
        task_routes={keys.ROUTE_TASK: {"queue": keys.ROUTE_QUEUE}},
    )
    return app


class Links:
    """Sends through `app`; see `sender_of`."""

    def __init__(self, app: Celery) -> None:
        self._app = app

    def send(self, result: JobResult, envelope: Envelope) -> None:
        """All that is to follow the job's end. What a producer wrote wrongly is logged and left.

        Raises:
            ClusterUnavailable: Redis does not answer; nothing or a part was sent.
        """
        try:
            if result.state is JobState.DONE:
                self._after_success(result, envelope)
            else:
                self._after_failure(result, envelope)
        except (OperationalError, RedisConnectionError, RedisTimeoutError, OSError) as error:
            raise ClusterUnavailable(f"what follows job {result.id} waits: {error}") from error
        except Exception:
            # a signature is a producer's own; the next job's must still be sent
            LOG.exception(
                "what follows job %s could not be sent", result.id, extra={"job": result.id}
            )

    def _after_success(self, result: JobResult, envelope: Envelope) -> None:
        value = result.model_dump(mode="json", exclude_none=True)
        family = {"parent_id": result.id, "root_id": envelope.root_id or result.id}
        for callback in envelope.link:
            signature(callback, app=self._app).apply_async((value,), **family)
        if envelope.chain:
            # Celery keeps the rest of a chain in reverse
            *rest, following = envelope.chain
            signature(following, app=self._app).apply_async((value,), chain=rest, **family)
        self._return_part(result, envelope, SUCCESS, value)

    def _after_failure(self, result: JobResult, envelope: Envelope) -> None:
        error = _error(result)
        state = FAILURE if result.state is JobState.FAILED else REVOKED
        self._return_part(result, envelope, state, error)
        backend = self._app.backend
        # the two have no public name; `mark_as_failure`, which calls them, would write the
        # job's own result again
        backend._fail_chain(envelope.chain, error, state=state)
        # like Celery, which calls no errbacks for a task that was revoked or expired
        if envelope.link_error and state == FAILURE:
            backend._call_task_errbacks(_context(result, envelope), error, None)

    def _return_part(
        self, result: JobResult, envelope: Envelope, state: str, value: object
    ) -> None:
        if envelope.chord is not None:
            self._app.backend.on_chord_part_return(_context(result, envelope), state, value)


def _context(result: JobResult, envelope: Envelope) -> Context:
    """The request of the task that the job stands for."""
    return Context(
        id=result.id,
        task=keys.ROUTE_TASK,
        root_id=envelope.root_id or result.id,
        parent_id=envelope.parent_id,
        group=envelope.group,
        group_index=envelope.group_index,
        chord=envelope.chord,
        errbacks=envelope.link_error,
        delivery_info={},
    )


def _error(result: JobResult) -> Exception:
    """The exception that `AsyncResult.get` raises for the job."""
    if result.state is not JobState.FAILED:
        revoked: Exception = TaskRevokedError(result.state.value)
        return revoked
    invalid = result.error is not None and result.error.code == "invalid"
    return InvalidJob(failure(result)) if invalid else JobFailed(failure(result))
