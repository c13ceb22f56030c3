"""The part of the pump that has runs make room. Owns for whom room is kept until they start, and
what both sides are told; who leaves is preemption's choice."""

import logging
from collections.abc import Iterable, Sequence
from typing import Protocol

from noidle.results import Decision
from noidle.snapshot import PoolSnapshot, Pressure
from routing.blocked import blocked_heads
from routing.board import PumpRole
from routing.causes import ROOM
from routing.decided import Decided
from routing.explanation import decision_of
from routing.order import RANKS
from routing.placement import Placement
from routing.preemption import RESPONSE_FIRST, Eviction, Terms, make_room, relieve
from routing.running import Preemption, RunningJob

LOG = logging.getLogger("noidle.pump")
KEPT_MS = 5_000
"""So long after the last sign of a run that leaves, its room is kept for whom it leaves."""
REST_MS = 100
"""Where nobody could be asked, the next try waits so long: a pump that cannot keep up looks very
often, and each try reads what runs in many pools."""


class Rooms(Protocol):
    """See routing.board.Board, of which this is a part."""

    def running(self, pools: list[str], /) -> list[RunningJob]: ...

    def preempt(self, role: PumpRole, wishes: list[Preemption], /) -> list[bool]: ...

    def note(self, decisions: list[Decision], /) -> None: ...


class RoomMaker:
    """Looks into pools only while somebody is blocked."""

    def __init__(self, board: Rooms, terms: Terms = RESPONSE_FIRST) -> None:
        self._board = board
        self.terms = terms
        # by pool and job, until when room is kept and for which rank
        self._kept: dict[tuple[str, str], tuple[int, int]] = {}
        self._rests_until_ms = 0

    def granted(self, placements: Decided, now_ms: int) -> list[Placement]:
        """Those that may take what they were given: room made for others is not for lower ones."""
        if self._kept:
            self._forget(placements, now_ms)
        return [one for one in placements.looked if one.grant and self._allows(one)]

    def _allows(self, placement: Placement) -> bool:
        if not self._kept or placement.pool is None:
            return True
        rank, pool = RANKS[placement.job.job_class], placement.pool.pool
        if (pool, placement.job.id) in self._kept:
            return True
        return all(place != pool or rank <= kept for (place, _), (_, kept) in self._kept.items())

    def serves(self, job_id: str) -> bool:
        """Room is being made for it, and it was told so."""
        return any(job == job_id for _, job in self._kept)

    def make(self, role: PumpRole, placements: Decided, now_ms: int) -> int:
        """Has runs leave for those that wait too long; says how many were asked."""
        if now_ms < self._rests_until_ms:
            return 0
        blocked = blocked_heads(placements.looked, self.terms, now_ms)
        if not blocked:
            return 0
        pools = {name for one in blocked for option in one.options for name in option.sharers}
        evictions = make_room(blocked, self._board.running(sorted(pools)), self.terms)
        for one in evictions:
            place = one.pool, one.blocked.job.id
            self._kept[place] = now_ms + KEPT_MS, RANKS[one.blocked.job.job_class]
        asked = self._ask(role, [one for one in evictions if not one.run.leaving], now_ms)
        if not asked:
            self._rests_until_ms = now_ms + REST_MS
        else:
            self._board.note(_notes(asked, placements.looked, now_ms))
        return len(asked)

    def relieve(self, role: PumpRole, pools: Iterable[PoolSnapshot], now_ms: int) -> int:
        """Stops training where memory runs out, whatever the profile."""
        short = [pool.pool for pool in pools if pool.pressure is Pressure.HARD]
        runs = relieve(self._board.running(short)) if short else []
        return sum(self._board.preempt(role, [_stop(run, now_ms) for run in runs]))

    def _forget(self, placements: Decided, now_ms: int) -> None:
        waiting = {job.id for job in placements.jobs()}
        self._kept = {
            place: kept
            for place, kept in self._kept.items()
            if place[1] in waiting and now_ms < kept[0]
        }

    def _ask(self, role: PumpRole, evictions: list[Eviction], now_ms: int) -> list[Eviction]:
        wishes = [_wish(one, now_ms) for one in evictions]
        granted = self._board.preempt(role, wishes)
        asked = [one for one, yes in zip(evictions, granted, strict=True) if yes]
        for one in asked:
            about = {"event": "pump.preempt", "job": one.run.id, "pool": one.run.pool}
            LOG.info("%s makes room for %s", one.run.id, one.blocked.job.id, extra=about)
        return asked


def _wish(one: Eviction, now_ms: int) -> Preemption:
    job = one.blocked.job
    reason = (
        f"makes room for {job.job_class} job {job.id}, which would have waited"
        f" {one.blocked.start_s:.2f} s; {_later(one.run)}"
    )
    return Preemption(
        job=one.run.id,
        token=one.run.token,
        for_job=job.id,
        free_memory=one.free_memory,
        decision=_decision(one.run, reason, now_ms),
    )


def _stop(run: RunningJob, now_ms: int) -> Preemption:
    reason = f"stops because memory runs out there; {_later(run)}"
    return Preemption(
        job=run.id,
        token=run.token,
        for_job=None,
        free_memory=True,
        decision=_decision(run, reason, now_ms),
    )


def _decision(run: RunningJob, reason: str, now_ms: int) -> Decision:
    return Decision(job=run.id, at_ms=now_ms, action="preempt", pool=run.pool, reason=reason)


def _later(run: RunningJob) -> str:
    if not run.progress:
        return "it begins later"
    unit = "step" if run.kind == "train" else "token"
    return f"it goes on later behind {unit} {run.progress}"


def _notes(
    asked: Sequence[Eviction], placements: Iterable[Placement], now_ms: int
) -> list[Decision]:
    """What those are told that room is made for."""
    by_job = {one.job.id: one for one in placements}
    leaving: dict[tuple[str, str], list[str]] = {}
    for one in asked:
        words = f"{one.run.job_class} {one.run.kind} job {one.run.id}"
        leaving.setdefault((one.blocked.job.id, one.pool), []).append(words)
    notes = []
    for (job, pool), runs in leaving.items():
        decision = decision_of(by_job[job], now_ms)
        verb = "makes" if len(runs) == 1 else "make"
        reason = f"{' and '.join(runs)} {verb} room for it on {pool}; else it {decision.reason}"
        notes.append(decision.model_copy(update={"reason": reason, "pool": pool, "cause": ROOM}))
    return notes
