"""The Celery tasks of a pool: noidle.generate, noidle.score and noidle.train.

Owns what Celery and Flower see of a run; results are the board's. A task that carries no lease
was sent to the queue by hand and is accepted as a job like any other, with the engine as its
wish. Knows nothing of engines."""

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from celery import Celery, Task
from celery.exceptions import Ignore

from noidle.errors import JobFailed
from noidle.jobs import KINDS, EngineName
from noidle.results import JobResult, JobState
from routing.board import Refusal
from routing.message import task_name
from workers.intake import REQUEST, Intake
from workers.runs import Ending, Outcome
from workers.work import Work

LOG = logging.getLogger("noidle.pool")


class PoolTask(Task):  # type: ignore[misc]  # celery has no types
    abstract = True
    ignore_result = True
    # of messages sent by hand; what a lease covers is never acknowledged
    acks_late = True
    Request = REQUEST
    # logged as what they are, without a trace of our own code
    throws = (JobFailed,)


def add_pool_tasks(
    app: Celery,
    work: Work,
    intake: Intake,
    *,
    engine: EngineName,
    forward: Callable[[str, str, str, str], None],
    announce: Callable[..., None],
) -> None:
    """Args:
    forward: sends job, kind and token on to another pool.
    announce: sends an event of Celery's about a job.
    """
    for kind in KINDS:
        steps = _Steps(kind, work, intake, engine, forward, announce)
        app.task(_runner(steps), name=task_name(kind), bind=True, base=PoolTask, shared=False)


def _runner(steps: "_Steps") -> Callable[..., str]:
    """A plain function: Celery binds no methods."""

    def run(task: Any, *args: Any, **fields: Any) -> str:
        return steps.run(task.request, args, fields)

    return run


class _Steps:
    def __init__(
        self,
        kind: str,
        work: Work,
        intake: Intake,
        engine: EngineName,
        forward: Callable[[str, str, str, str], None],
        announce: Callable[..., None],
    ) -> None:
        self._kind = kind
        self._work = work
        self._intake = intake
        self._engine = engine
        self._forward = forward
        self._announce = announce

    def run(self, request: Any, args: Sequence[Any], fields: Mapping[str, Any]) -> str:
        token = fields.get("lease")
        if args or not isinstance(token, str) or len(fields) > 1:
            self._intake.take(request, args, fields, kind=self._kind, engine=self._engine)
            raise Ignore("sent by hand: accepted as a job, or refused with a result")
        try:
            ended = self._work.do(request.id, token)
        except BaseException as error:
            # nothing a task does may end the worker; its lease runs out and counts as a crash
            LOG.exception("job %s fell out of its task", request.id, extra={"job": request.id})
            raise Ignore(repr(error)) from None
        if isinstance(ended, Refusal):
            raise self._refused(request.id, token, ended)
        return self._seen(request.id, ended)

    def _refused(self, job_id: str, token: str, refusal: Refusal) -> Ignore:
        if refusal.reason == "elsewhere" and refusal.pool is not None:
            # a queue that several pools share gave it to the wrong one
            self._forward(job_id, self._kind, token, refusal.pool)
        elif refusal.reason == "cancelled":
            self._announce_revoked(job_id)
        return Ignore(f"not claimed: {refusal.reason}")

    def _seen(self, job_id: str, outcome: Outcome) -> str:
        """What Flower shows of the run."""
        result = outcome.result
        if outcome.ending is not Ending.ENDED or result is None:
            raise Ignore(outcome.ending.value)
        if result.state is JobState.DONE:
            return _summary(result)
        if result.state is JobState.CANCELLED:
            self._announce_revoked(job_id)
            raise Ignore("cancelled")
        message = result.error.message if result.error else result.state.value
        raise JobFailed(message, job_id=job_id)

    def _announce_revoked(self, job_id: str) -> None:
        self._announce("task-revoked", uuid=job_id, terminated=False, signum=None, expired=False)


def _summary(result: JobResult) -> str:
    """In figures: Flower keeps what it is given, for thousands of jobs. A string, because
    Celery takes half a millisecond to print a table of five entries."""
    if result.train is not None:
        return f"{result.train.steps} steps, held-out loss {result.train.held_out_loss}"
    if result.perplexity is not None:
        return f"perplexity {result.perplexity:.4g}"
    count = len(result.tokens or ())
    return f"{count} tokens, {result.finish_reason}, revision {result.revision}"
