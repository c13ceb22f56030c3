"""The ways of a job to its worker and back that are compared. Each sends a job that costs
nothing and waits for its answer; knows nothing of rounds or figures."""

from typing import Protocol

from celery import Celery
from celery.result import AsyncResult

from noidle import Client, Job

PROMPT = "to be or not to be"
PATIENCE_S = 60.0
_JOB = {"kind": "generate", "model": "echo", "prompt": PROMPT, "max_tokens": 1}


class Way(Protocol):
    """One producer, one thread."""

    name: str

    def one(self) -> None:
        """A job, from the call to its answer."""

    def many(self, count: int) -> None:
        """All sent one after the other, then all answers."""


class CeleryWay:
    """`send_task`, and the answer from Celery's own result."""

    def __init__(self, name: str, app: Celery, task: str, queue: str, argument: object) -> None:
        self.name = name
        self._app = app
        self._task = task
        self._queue = queue
        self._arguments = [argument]

    def one(self) -> None:
        self.many(1)

    def many(self, count: int) -> None:
        sent: list[AsyncResult] = []
        try:
            sent.extend(self._send() for _ in range(count))
            for result in sent:
                _check(result.get(timeout=PATIENCE_S)["text"])
        except BaseException:
            # each would unsubscribe when it is forgotten, and Valkey will be gone by then
            for result in sent:
                result.backend = None
            raise

    def _send(self) -> AsyncResult:
        return self._app.send_task(self._task, args=self._arguments, queue=self._queue)


class ClientWay:
    """noidle's own client."""

    def __init__(self, name: str, client: Client) -> None:
        self.name = name
        self._client = client

    def one(self) -> None:
        _check(self._send().result(PATIENCE_S).text)

    def many(self, count: int) -> None:
        for job in [self._send() for _ in range(count)]:
            _check(job.result(PATIENCE_S).text)

    def _send(self) -> Job:
        return self._client.submit(_JOB)


def routed_by_celery(app: Celery) -> CeleryWay:
    return CeleryWay("routed, sent with Celery", app, "noidle.route", "route", _JOB)


def _check(text: str | None) -> None:
    assert text, "an answer without text"
