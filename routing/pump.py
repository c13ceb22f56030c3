"""The loop that decides. Owns its timing, the fenced role under which it decides, and what
happens when Redis is away; the decisions themselves are the policy's.

Every router runs a pump in a thread of its own, and one of them holds the role. Knows nothing of
Celery, engines or tensors."""

import logging
import secrets
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from noidle.errors import ClusterUnavailable
from noidle.profile import ProfileName
from noidle.results import JobError, JobResult
from routing.board import Board, Lease, PumpRole
from routing.bounds import HEADS_A_CLASS
from routing.counters import Counters
from routing.envelope import Envelope
from routing.explanation import decision_of, reason_of
from routing.message import lease_message
from routing.notes import Notes
from routing.patience import Patience
from routing.picture import SNAPSHOTS_S, Picture
from routing.placement import Action, Placement
from routing.policy import decide
from routing.preemption import RESPONSE_FIRST, Terms
from routing.profile import PROFILES
from routing.report import Report
from routing.rhythm import Timer, Trouble
from routing.room_maker import RoomMaker
from routing.roster import Roster

LOG = logging.getLogger("noidle.pump")
HEADS = 32
"""Held jobs seen of every held set."""
FEWEST_HEADS = 16
"""With fewer in sight, nothing is hidden: a class with so many sets that each shows less than all
its heads shows more of them together."""
DEEP_S = 0.25
"""While every job in sight waits for a faster pool than one that is free, so often a look goes
deeper: jobs behind those in sight may end sooner in the slow pool than at the end of the row."""
IDLE_S = 0.5
"""A look is taken so often whatever happens: a wake-up may be lost."""
STANDBY_S = 0.5
"""A router without the role asks for it so often."""
RENEW_S = 0.5
TIDY_S = 0.5
MEMORY_S = 1.0
LEASES_A_CALL = 128
"""One script run holds Redis for about so many times 30 µs."""
LINKS_A_LOOK = 16
FAILED_A_LOOK = 100


class LinkSender(Protocol):
    """See routing.links.Links."""

    def send(self, result: JobResult, envelope: Envelope) -> None: ...


class Strays(Protocol):
    """See routing.stray.StrayMessages."""

    def gather(self) -> int: ...


class Pump:
    """`clock` counts seconds and never goes back; `token` draws what fences a lease."""

    def __init__(
        self,
        board: Board,
        router: str,
        *,
        links: LinkSender | None = None,
        strays: Strays | None = None,
        unplaceable_s: float = 60.0,
        terms: Terms = RESPONSE_FIRST,
        clock: Callable[[], float] = time.monotonic,
        token: Callable[[], str] = lambda: secrets.token_hex(16),
    ) -> None:
        self.counters = Counters()
        self._board = board
        self._router = router
        self._links = links
        self._strays = strays
        self._clock = clock
        self._token = token
        self._picture = Picture(board, clock)
        self._roster = Roster()
        self._patience = Patience(unplaceable_s)
        self._room = RoomMaker(board, terms)
        self._profile = PROFILES[ProfileName.RESPONSE_FIRST]
        self._report = Report(router, self.counters, clock)
        self._notes = Notes()
        self._role: PumpRole | None = None
        # jobs were held at the last look: fresh snapshots may free them
        self._waiting = False
        # something free was good enough for none of the jobs in sight, and there may be more
        self._spurned = False
        self._deep = Timer(clock, DEEP_S)
        self._renew = Timer(clock, RENEW_S)
        self._tidy = Timer(clock, TIDY_S)
        self._memory = Timer(clock, MEMORY_S)

    def run(self, stop: threading.Event) -> None:
        """Decides until `stop` is set, then lets another router take the role at once. Ends
        within a second while Redis answers."""
        trouble = Trouble(self._clock)
        while not stop.is_set():
            try:
                more = self.look()
                if trouble.over():
                    LOG.warning("the pump goes on", extra={"event": "pump.over"})
                if more is None:
                    stop.wait(STANDBY_S)
                elif not more:
                    self._board.wait_for_work(SNAPSHOTS_S if self._waiting else IDLE_S)
            except ClusterUnavailable as error:
                if trouble.new(error):
                    LOG.warning("held jobs wait: %s", error, extra={"event": "pump.trouble"})
                self._after_error(trouble, stop)
            except Exception as error:
                # nobody else decides: this thread must outlive any fault
                if trouble.new(error):
                    LOG.exception("held jobs wait", extra={"event": "pump.fault"})
                self._after_error(trouble, stop)
        self._give_up()

    def _after_error(self, trouble: Trouble, stop: threading.Event) -> None:
        self.counters.errors += 1
        # another router may have taken over
        self._role = None
        stop.wait(trouble.wait_s())

    def look(self) -> bool | None:
        """One round. None without the role; else whether there may be more to do at once."""
        role = self._hold_role()
        if role is None:
            return None
        self.counters.looks += 1
        # a job that has just come waits for nothing else
        more = self._decide(role)
        more = self._send_links() or more
        self._keep_tidy(role)
        return more

    def _hold_role(self) -> PumpRole | None:
        if self._role is None or self._renew.due():
            before = self._role
            self._role = self._board.take_pump(self._router)
            if self._role is not None and self._role != before:
                LOG.info("%s decides now", self._router, extra={"event": "pump.role"})
        return self._role

    def _give_up(self) -> None:
        if self._role is None:
            return
        try:
            self._board.give_up_pump(self._role)
        except ClusterUnavailable:
            # it runs out by itself
            LOG.info("the pump's role was not given back", extra={"event": "pump.role"})

    def _send_links(self) -> bool:
        if self._links is None:
            return False
        for _ in range(LINKS_A_LOOK):
            taken = self._board.take_after()
            if taken is None:
                return False
            result, envelope = taken
            try:
                self._links.send(result, envelope)
            except ClusterUnavailable as error:
                # the board gives it out again; deciding must not wait for it
                self.counters.errors += 1
                LOG.warning("%s", error, extra={"event": "pump.links", "job": result.id})
                return False
            self._board.sent(result.id)
            self.counters.links += 1
        return True

    def _keep_tidy(self, role: PumpRole) -> None:
        if self._tidy.due():
            self.counters.reaped += len(self._board.reap(role))
            if self._strays is not None:
                self.counters.gathered += self._strays.gather()
            self._follow_profile()
            self._board.tell(self._report.make(self._profile, self._picture.experience))
            pools, now_ms = self._picture.pools, self._picture.now_ms()
            self.counters.preempted += self._room.relieve(role, pools, now_ms)
        if self._memory.due():
            self._board.guard_memory()

    def _follow_profile(self) -> None:
        name, weights = self._board.profile(), self._board.weights()
        if name is not self._profile.name:
            LOG.info("%s now", name.value, extra={"event": "pump.profile"})
            # why jobs wait may be another reason from now on
            self._notes = Notes()
        if name is not self._profile.name or weights != self._profile.weights:
            self._profile = replace(PROFILES[name], weights=weights)
            self._room.terms = self._profile.terms

    def _decide(self, role: PumpRole) -> bool:
        """One look at all held jobs; says whether there may be more behind the heads."""
        # 1. what waits, and where it could go
        deep = self._spurned and self._deep.due()
        held, loads = self._board.waiting(HEADS_A_CLASS if deep else HEADS)
        self._waiting = bool(held)
        self._picture.learn()
        if not held:
            self._picture.glance()
            return False
        self._picture.promises.drop(job.id for job in held)
        cluster = self._picture.cluster(loads)
        now_ms = self._picture.now_ms()
        self._picture.arrivals.note(held, now_ms)
        # 2. who goes where
        placements = decide(held, cluster, now_ms, self._roster, self._profile, deep=deep)
        self._picture.waits.note(placements.looked, now_ms)
        leased = self._lease(role, self._room.granted(placements, now_ms), now_ms)
        self._spurned = len(held) >= HEADS and any(one.spurns for one in placements.looked)
        # 3. what becomes of the others
        hopeless = self._patience.exhausted(placements.looked, now_ms, any_pool=bool(cluster.pools))
        self._fail("unplaceable", hopeless, now_ms)
        late = [one for one in placements.looked if one.action is Action.REFUSED]
        self._fail("deadline", late, now_ms)
        self.counters.preempted += self._room.make(role, placements, now_ms)
        due = [
            one for one in self._notes.due(placements, now_ms) if not self._room.serves(one.job.id)
        ]
        if due:
            self._board.note([decision_of(one, now_ms) for one in due])
            self.counters.noted += len(due)
        return leased > 0 and len(held) >= FEWEST_HEADS

    def _lease(self, role: PumpRole, placements: Sequence[Placement], now_ms: int) -> int:
        leased = 0
        for first in range(0, len(placements), LEASES_A_CALL):
            part = placements[first : first + LEASES_A_CALL]
            granted = self._board.lease(role, [self._to_lease(one, now_ms) for one in part])
            for placement, yes in zip(part, granted, strict=True):
                if yes:
                    self._picture.remember(placement, now_ms)
            leased += sum(granted)
            self.counters.not_granted += len(granted) - sum(granted)
        self.counters.leased += leased
        return leased

    def _to_lease(self, placement: Placement, now_ms: int) -> Lease:
        job, pool, grant, need = placement.job, placement.pool, placement.grant, placement.need
        assert pool is not None
        assert grant is not None
        assert need is not None
        token = self._token()
        message = lease_message(
            job_id=job.id,
            kind=job.kind,
            token=token,
            queue=grant.queue,
            origin=self._router,
            shown=f"{{'model': '{job.model}', 'class': '{job.job_class}'}}",
        )
        return Lease(
            job=job.id,
            pool=pool.pool,
            queue=grant.queue,
            token=token,
            message=message,
            kv_tokens=need.kv_tokens,
            memory_bytes=grant.memory_bytes,
            slots=pool.slots,
            kv_tokens_total=grant.kv_tokens_total,
            memory_free_bytes=grant.memory_limit,
            sharers=grant.sharers,
            alone=job.alone,
            decision=decision_of(placement, now_ms, self._notes.waited_for(job.id)),
        )

    def _fail(self, code: str, placements: Sequence[Placement], now_ms: int) -> None:
        for placement in placements[:FAILED_A_LOOK]:
            error = JobError(code=code, message=reason_of(placement))
            if self._board.fail(placement.job.id, error, decision_of(placement, now_ms)):
                self.counters.failed += 1
