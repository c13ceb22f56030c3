"""How a job that somebody sent with Celery alone is accepted, or refused in words.

Owns the reading of such a message: its arguments, its id, and what Celery put around it. Knows
nothing of the client's own way, or of pools."""

import logging
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from celery.exceptions import Reject
from celery.worker.request import Request as CeleryRequest

from noidle.errors import ClusterUnavailable, InvalidJob, NoidleError, Overloaded
from noidle.jobs import EngineName, parse_job
from noidle.results import JobError
from routing.board import Board
from routing.envelope import Envelope
from routing.message import LEASED_HEADER

LOG = logging.getLogger("noidle.intake")
REQUEST = f"{__name__}:Request"
"""For tasks, which name their request class."""
PAUSE_S = 0.5
_AT_ONCE_S = 0.001


class Request(CeleryRequest):  # type: ignore[misc]  # celery has no types
    """Celery's own delays, expiry and revocation act in one worker's memory; noidle has all
    three on the board. What a lease covers needs no acknowledgement either."""

    @property
    def eta(self) -> None:
        return None

    def revoked(self) -> bool:
        return False

    def acknowledge(self) -> None:
        if LEASED_HEADER in self.request_dict:
            self.acknowledged = True
        else:
            super().acknowledge()


class Intake:
    """Accepts jobs from Celery messages; one for a worker process."""

    def __init__(
        self,
        board: Board,
        *,
        revoked_before: Callable[[str], bool],
        pause: Callable[[float], bool],
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`pause` waits and says whether the process is being stopped."""
        self._board = board
        self._revoked_before = revoked_before
        self._pause = pause
        self._now = now

    def take(
        self,
        request: Any,
        args: Sequence[Any],
        fields: Mapping[str, Any],
        *,
        kind: str | None = None,
        engine: EngineName | None = None,
    ) -> None:
        """Accepts the job or refuses it with a result. Does not return before one of both is
        done, so that the message may be acknowledged.

        Args:
            request: the task's context.
            kind, engine: what the task's name or the queue says; the job may not contradict.

        Raises:
            Reject: the process is being stopped and Redis does not answer; the message stays.
        """
        while True:
            try:
                self._take_once(request, args, fields, kind, engine)
                return
            except ClusterUnavailable as error:
                LOG.warning("job %s waits: %s", request.id, error)
                if self._pause(PAUSE_S):
                    raise Reject(str(error), requeue=True) from error

    def _take_once(
        self,
        request: Any,
        args: Sequence[Any],
        fields: Mapping[str, Any],
        kind: str | None,
        engine: EngineName | None,
    ) -> None:
        job_id, envelope = str(request.id), _envelope(request)
        try:
            data = self._job_data(request, args, fields, kind, engine)
            kind = str(data.get("kind"))
            self._board.accept(parse_job(data), envelope)
        except ClusterUnavailable:
            raise
        except NoidleError as error:
            LOG.info("job %s is refused: %s", job_id, error, extra={"job": job_id})
            self._board.refuse(job_id, kind, _as_error(error), envelope)
        except Exception as error:
            # a fault of ours must not leave a producer waiting
            LOG.exception("job %s could not be accepted", job_id, extra={"job": job_id})
            self._board.refuse(
                job_id, kind, JobError(code="internal", message=repr(error)), envelope
            )
        if self._revoked_before(job_id):
            self._board.cancel(job_id)

    def _job_data(
        self,
        request: Any,
        args: Sequence[Any],
        fields: Mapping[str, Any],
        kind: str | None,
        engine: EngineName | None,
    ) -> dict[str, Any]:
        data = _body(args, fields)
        given = data.setdefault("id", request.id)
        if given != request.id:
            raise InvalidJob.of("id", given, f"absent, or the task's id {request.id!r}")
        if request.eta is not None:
            allowed = "absent: send the job when it may start"
            raise InvalidJob.of("eta", request.eta, allowed)
        if kind is not None and data.setdefault("kind", kind) != kind:
            raise InvalidJob.of("kind", data["kind"], f"{kind}, as the task's name says")
        if engine is not None and data.setdefault("engine", engine) != engine:
            raise InvalidJob.of("engine", data["engine"], f"{engine}, as the queue says")
        if request.expires is not None and "expires_s" not in data:
            data["expires_s"] = self._seconds_to(request.expires)
        return data

    def _seconds_to(self, moment: object) -> float:
        """Celery's `expires`, an ISO time; a time that is past ends the job at once."""
        try:
            then = datetime.fromisoformat(str(moment))
        except ValueError:
            raise InvalidJob.of("expires", moment, "a time in ISO 8601") from None
        if then.tzinfo is None:
            then = then.replace(tzinfo=UTC)
        return max(_AT_ONCE_S, (then - self._now()).total_seconds())


def _body(args: Sequence[Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    allowed = "one object such as {'kind': 'generate', …}, or its fields as keyword arguments"
    if not args:
        return dict(fields)
    if len(args) > 1 or fields or not isinstance(args[0], dict):
        # in a chain Celery puts the result before it in front
        allowed += "; behind another task send it as an immutable signature, .si(…)"
        raise InvalidJob.of("job", [*args, dict(fields)] if fields else list(args), allowed)
    return dict(args[0])


def _as_error(error: NoidleError) -> JobError:
    if isinstance(error, InvalidJob):
        return JobError(
            code="invalid",
            message=str(error),
            field=error.field,
            value=error.value,
            allowed=error.allowed,
        )
    code = "overloaded" if isinstance(error, Overloaded) else "internal"
    return JobError(code=code, message=str(error))


def _envelope(request: Any) -> Envelope:
    properties = request.properties or {}
    return Envelope(
        link=_signatures(request.callbacks),
        link_error=_signatures(request.errbacks),
        chain=_signatures(request.chain),
        chord=request.chord,
        group=request.group,
        group_index=request.group_index,
        root_id=request.root_id,
        parent_id=request.parent_id,
        delivery=properties.get("delivery_tag"),
    )


def _signatures(found: Any) -> list[dict[str, object]]:
    return [dict(signature) for signature in found or ()]
