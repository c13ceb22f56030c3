"""Which waiting jobs get a note on why they wait. Owns the choice; knows nothing of the words.

Putting a decision in words costs as much as making ten, so a note is made only for jobs that
wait a while, only when something changed for them, and only so many at a time."""

from collections.abc import Iterable

from routing.causes import cause_of
from routing.placement import Action, Placement

AFTER_MS = 250
"""A job that goes on sooner needs no note."""
AT_ONCE = 16
"""Notes one look may make."""
REPEAT_MS = 5000
"""After this a note is offered again; the board drops it if it says nothing new."""

_Mark = tuple[object, ...]


class Notes:
    """Remembers what was said of the jobs seen at the last look."""

    def __init__(self) -> None:
        self._said: dict[str, tuple[_Mark, int]] = {}
        # what the jobs that wait waited for at the last look
        self._causes: dict[str, str] = {}

    def waited_for(self, job_id: str) -> str | None:
        return self._causes.get(job_id)

    def due(self, placements: Iterable[Placement], now_ms: int) -> list[Placement]:
        """The waiting jobs of one look that are to get a note, the first in order first."""
        said: dict[str, tuple[_Mark, int]] = {}
        due: list[Placement] = []
        self._causes.clear()
        for one in placements:
            job = one.job
            if one.action is Action.LEASE:
                continue
            cause = cause_of(one)
            if cause is not None:
                self._causes[job.id] = cause
            last = self._said.get(job.id)
            if last is not None:
                said[job.id] = last
            if len(due) >= AT_ONCE or now_ms - job.held_since_ms < AFTER_MS:
                continue
            mark = _mark(one)
            if last is None or last[0] != mark or now_ms - last[1] >= REPEAT_MS:
                said[job.id] = mark, now_ms
                due.append(one)
        self._said = said
        return due


def _mark(placement: Placement) -> _Mark:
    pool, forecast = placement.pool, placement.forecast
    return (
        placement.action,
        pool.pool if pool else None,
        forecast[2] if forecast else None,
        placement.view is None,
        placement.able,
    )
