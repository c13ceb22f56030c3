"""How long a job that no pool can run is held before it fails. Owns the waiting; knows nothing
of why no pool can run it.

Time counts from when a requirement became unplaceable, not from when the job came: a pool that
is away for a moment must not fail all that waited for it. It counts for a requirement, not for
a job, since of a thousand jobs alike only the first are seen. Without any pool nothing is
known, and nothing fails."""

from collections.abc import Iterable

from noidle.jobs import EngineName
from routing.board import HeldJob
from routing.placement import Action, Placement

Requirement = tuple[str, str, EngineName | None, str | None, int]


class Patience:
    """Forgets a requirement as soon as it can be served or nobody asks for it."""

    def __init__(self, limit_s: float) -> None:
        self._limit_ms = limit_s * 1000
        self._since_ms: dict[Requirement, int] = {}

    def exhausted(
        self, placements: Iterable[Placement], now_ms: int, *, any_pool: bool
    ) -> list[Placement]:
        """Those of one look that have waited long enough."""
        if not any_pool:
            self._since_ms.clear()
            return []
        hopeless = [one for one in placements if one.action is Action.UNPLACEABLE]
        asked = {_requirement(one.job) for one in hopeless}
        self._since_ms = {key: self._since_ms.get(key, now_ms) for key in asked}
        return [one for one in hopeless if self._over(one.job, now_ms)]

    def _over(self, job: HeldJob, now_ms: int) -> bool:
        since_ms = max(self._since_ms[_requirement(job)], job.held_since_ms)
        return now_ms - since_ms >= self._limit_ms


def _requirement(job: HeldJob) -> Requirement:
    # jobs of like size are refused alike by KV cache and context
    size = (job.prompt_bytes // 3 + job.max_tokens).bit_length()
    return job.kind, job.model, job.engine, job.storage, size
