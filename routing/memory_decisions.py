"""The pump's side of the memory board: its role, what waits, what is promised, leases, notes and
the reaper. Owns the rules of the scripts of those names; knows nothing of how a run goes on."""

from collections import deque

from noidle.profile import ProfileName
from noidle.results import Decision, JobError, JobResult, JobState
from noidle.snapshot import ModelInfo, RouterDetail
from routing.board import HeldJob, Lease, PoolLoad, PumpRole
from routing.bounds import DECISIONS_KEPT, HEADS_A_CLASS, TAKEN_MS, TOLD_MS, WEIGHTS_KEPT
from routing.ended import Run
from routing.envelope import Envelope
from routing.memory_record import Record, to_held
from routing.memory_shelves import fits
from routing.memory_state import MemoryPart
from routing.novelty import mark, takes_leases


class MemoryDecisions(MemoryPart):
    """The second part of a Board."""

    def take_pump(self, router: str) -> PumpRole | None:
        with self._lock:
            state = self._state
            if state.role is None or state.now >= state.role_end:
                state.fence += 1
                state.role = PumpRole(router=router, fence=state.fence)
            elif state.role.router != router:
                return None
            state.role_end = state.now + self._limits.role_ms
            return state.role

    def give_up_pump(self, role: PumpRole) -> None:
        with self._lock:
            if self._state.holds(role):
                self._state.role = None
                self._state.wake()

    def wait_for_work(self, timeout_s: float) -> bool:
        return self._state.wait(timeout_s)

    def held(self, per_set: int) -> list[HeldJob]:
        with self._lock:
            self._state.turn += 1
            self._state.end_expired(self._limits.lease_ms)
            self._state.end_overdue(self._limits.lease_ms)
            heads = self._state.held.heads(per_set, HEADS_A_CLASS, self._state.turn)
            return [to_held(self._state.records[job_id]) for job_id in heads]

    def loads(self) -> dict[str, PoolLoad]:
        with self._lock:
            return self._state.promises.loads(self._state.now)

    def waiting(self, per_set: int) -> tuple[list[HeldJob], dict[str, PoolLoad]]:
        with self._lock:
            return self.held(per_set), self.loads()

    def models(self) -> dict[str, ModelInfo]:
        with self._lock:
            return dict(self._state.models.known)

    def lease(self, role: PumpRole, leases: list[Lease]) -> list[bool]:
        with self._lock:
            if not self._state.holds(role):
                return [False] * len(leases)
            opened = {one.pool for one, _ in self._state.published() if takes_leases(one)}
            return [self._lease(lease, opened) for lease in leases]

    def _lease(self, lease: Lease, opened: set[str]) -> bool:
        state = self._state
        record = state.find(lease.job)
        if record is None:
            return False
        if record.state is JobState.LEASED and record.token == lease.token:
            return True
        expired = record.expires_at is not None and state.now >= record.expires_at
        if record.state is not JobState.HELD or expired or lease.pool not in opened:
            return False
        alone = lease.alone or record.alone
        beside = sum(state.promises.load(one, state.now).memory_bytes for one in lease.sharers)
        load = state.promises.load(lease.pool, state.now)
        if not fits(lease, load, alone=alone, beside_bytes=beside):
            return False
        state.held.remove(record.held_set, record.order, record.id)
        state.promises.add(lease, alone=alone)
        record.state = JobState.LEASED
        record.token, record.pool = lease.token, lease.pool
        record.leased = state.now
        record.lease_end = state.now + self._limits.lease_ms
        record.held_ms += max(0.0, state.now - record.held_since)
        record.end_wait(state.now, lease.decision.cause)
        self._keep(record, lease.decision)
        state.queues.setdefault(lease.queue, deque()).append(lease.message)
        return True

    def _keep(self, record: Record, decision: Decision) -> None:
        record.said = mark(decision)
        record.decisions = [decision, *record.decisions[: DECISIONS_KEPT - 1]]

    def note(self, decisions: list[Decision]) -> None:
        with self._lock:
            for decision in decisions:
                record = self._state.find(decision.job)
                if record and record.state is JobState.HELD and record.said != mark(decision):
                    self._keep(record, decision)
                    record.wait_for(decision.cause, self._state.now)

    def reap(self, role: PumpRole) -> list[str]:
        with self._lock:
            state = self._state
            if not state.holds(role):
                return []
            now, last = state.now, state.reaped
            state.reaped = now
            leased = [r for r in map(state.find, list(state.alive)) if r and r.pool]
            if last is None or not 0 <= now - last <= self._limits.lease_ms / 2:
                for record in leased:
                    record.lease_end = now + self._limits.lease_ms
                return []
            return [r.id for r in leased if r.lease_end <= now and self._reap(r)]

    def _reap(self, record: Record) -> bool:
        if record.state is JobState.LEASED:
            self._state.hold_again(record)
        else:
            self._state.crashed(record, self._limits.crash_limit)
        return record.state is JobState.HELD

    def fail(self, job_id: str, error: JobError, decision: Decision | None = None) -> bool:
        with self._lock:
            record = self._state.find(job_id)
            if record is None or record.state is not JobState.HELD:
                return False
            if decision is not None:
                self._keep(record, decision)
            self._state.end_without_result(record, JobState.FAILED, error.message, error)
            return True

    def guard_memory(self) -> str | None:
        return self._state.full

    def runs(self) -> list[Run]:
        with self._lock:
            found = list(self._state.runs)
            self._state.runs.clear()
            return found

    def profile(self) -> ProfileName:
        return self._state.profile

    def set_profile(self, name: ProfileName) -> None:
        self._state.profile = name

    def weights(self) -> dict[str, float]:
        with self._lock:
            return dict(self._state.weights)

    def set_weight(self, label: str, weight: float) -> bool:
        with self._lock:
            weights = self._state.weights
            if weight == 1:
                weights.pop(label, None)
                return True
            if len(weights) >= WEIGHTS_KEPT and label not in weights:
                return False
            weights[label] = weight
            return True

    def tell(self, detail: RouterDetail) -> None:
        with self._lock:
            self._state.told = self._state.now, detail

    def told(self) -> RouterDetail | None:
        with self._lock:
            at, detail = self._state.told
            return detail if self._state.now < at + TOLD_MS else None

    def take_after(self) -> tuple[JobResult, Envelope] | None:
        with self._lock:
            now = self._state.now
            late = [job for job, at in self._state.taken.items() if now - at >= TAKEN_MS]
            while late or self._state.after:
                job_id = late.pop(0) if late else self._state.after.popleft()
                self._state.taken.pop(job_id, None)
                record = self._state.find(job_id)
                if record is not None and record.result is not None and not record.settled:
                    self._state.taken[job_id] = now
                    return record.result, record.envelope
            return None

    def sent(self, job_id: str) -> None:
        with self._lock:
            record = self._state.find(job_id)
            if self._state.taken.pop(job_id, None) is not None and record is not None:
                record.settled = True
