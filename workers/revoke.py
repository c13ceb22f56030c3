"""Celery's `revoke` and `terminate` commands, as noidle's cancel.

So `AsyncResult.revoke`, Flower's button and `Job.cancel()` mean the same: a held job ends at
once, a running one at its next step, and the same id can be sent again. Knows nothing of how a
run is stopped."""

import logging
import time
from typing import Any

import redis
from celery.utils.functional import maybe_list
from celery.worker import control

from noidle import keys
from noidle.errors import ClusterUnavailable
from routing.board import Board
from workers.mailbox import message_tag

LOG = logging.getLogger("noidle.revoke")
REMEMBERED_S = 60
_celery_revoke = control.Panel.data["revoke"]


class Unborn:
    """Ids that were revoked before their job arrived: it may still lie in the route queue."""

    def __init__(self, client: redis.Redis) -> None:
        self._client = client
        # spares the question while nobody revokes what is not there
        self._until_s = 0.0

    def remember(self, job_id: str) -> None:
        self._client.set(keys.revoked(job_id), "1", ex=REMEMBERED_S)
        self._until_s = time.monotonic() + REMEMBERED_S

    def take(self, job_id: str) -> bool:
        """True once for each id that was remembered."""
        if time.monotonic() > self._until_s:
            return False
        return bool(self._client.getdel(keys.revoked(job_id)))


def replace_revoke(board: Board, unborn: Unborn | None) -> None:
    """Replaces both commands in this process.

    Args:
        unborn: absent in pools: one kind of worker is enough to remember.
    """

    def revoke(state: Any, task_id: Any, **options: Any) -> dict[str, str]:
        """Cancel jobs by id."""
        told = message_tag()
        unknown = [one for one in maybe_list(task_id) or [] if not _cancel(board, str(one), told)]
        if unknown and unborn is not None:
            for job_id in unknown:
                unborn.remember(job_id)
            # no job of ours, or not yet: what Celery does with any task
            _celery_revoke(state, unknown, **{**options, "terminate": False})
        return {"ok": "cancelled, or on its way out"}

    def terminate(state: Any, signal: Any, task_id: Any, **_: Any) -> dict[str, str]:
        """Cancel jobs by id."""
        return revoke(state, task_id, signal=signal)

    for command, arguments in (
        (revoke, "[id1 [id2 [... [idN]]]]"),
        (terminate, "<signal> [id1 …]"),
    ):
        control.Panel.register(
            name=command.__name__, type="control", variadic="task_id", signature=arguments
        )(command)


def _cancel(board: Board, job_id: str, told: str | None) -> bool:
    """False if no job of this id is known. Every router and pool is `told` the same."""
    try:
        return board.cancel(job_id, told) or board.status(job_id) is not None
    except ClusterUnavailable as error:
        LOG.warning("job %s is not cancelled: %s", job_id, error, extra={"job": job_id})
        return True
