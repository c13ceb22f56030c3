"""Accepting, refusing and cancelling in the memory board. Owns the rules of accept.lua, cancel.lua
and refuse.lua; knows nothing of pools."""

from noidle import acceptance
from noidle.jobs import Generate, Train
from noidle.results import JobError, JobState
from routing.board import AnyJob
from routing.bounds import REFUSED_KEEP_S, TOLD_MS
from routing.envelope import Envelope
from routing.memory_record import Record
from routing.memory_state import MemoryPart
from routing.outcome import CANCELLED_HELD


class MemoryAcceptance(MemoryPart):
    """The first part of a Board."""

    def accept(self, job: AnyJob, envelope: Envelope | None = None) -> bool:
        around = envelope or Envelope()
        digest = acceptance.digest(acceptance.written(job))
        with self._lock:
            old = self._state.find(job.id)
            if old is not None:
                if around.delivery and old.delivery == around.delivery:
                    return False
                if not old.again:
                    if old.digest != digest:
                        raise acceptance.different(job)
                    return False
            self._check_room()
            self._check_model(job)
            if old is not None:
                del self._state.records[job.id]
            self._state.add(self._fresh(job, around, digest))
            return True

    def _check_room(self) -> None:
        if self._state.full:
            raise acceptance.closed(self._state.full)
        held = len(self._state.held)
        if held >= self._limits.held:
            at, told = self._state.told
            fresh = told is not None and self._state.now < at + TOLD_MS
            raise acceptance.crowded(held, told.retry_s if told and fresh else None)

    def _check_model(self, job: AnyJob) -> None:
        models = self._state.models
        info = models.known.get(job.model)
        if info is not None:
            wanted = acceptance.tokens_wanted(job)
            if isinstance(job, Generate) and info.context is not None and wanted > info.context:
                raise acceptance.too_long(job, info.context)
        elif isinstance(job, Train):
            models.plan(acceptance.planned(job), job.id)
        elif models.named_by_pools:
            raise acceptance.unknown_model(job, list(models.known))

    def _fresh(self, job: AnyJob, around: Envelope, digest: str) -> Record:
        now = self._state.now
        trains = isinstance(job, Train)
        return Record(
            id=job.id,
            kind=job.kind,
            job=job,
            envelope=around,
            keep_s=job.keep_s,
            accepted=now,
            seed=acceptance.draw_seed(job, self._limits.rng),
            digest=digest,
            delivery=around.delivery or "",
            held_set=acceptance.held_set(job),
            order=acceptance.ORDER_BY_SERVICE if trains else self._state.arrival(),
            expires_at=None if job.expires_s is None else now + job.expires_s * 1000,
            deadline_at=None if job.deadline_s is None else now + job.deadline_s * 1000,
        )

    def refuse(
        self, job_id: str, kind: str | None, error: JobError, envelope: Envelope | None = None
    ) -> None:
        with self._lock:
            old = self._state.find(job_id)
            if old is not None and not old.again:
                return
            if old is not None:
                del self._state.records[job_id]
            record = Record(
                id=job_id,
                kind=kind,
                job=None,
                envelope=envelope or Envelope(),
                keep_s=REFUSED_KEEP_S,
                accepted=self._state.now,
            )
            self._state.records[job_id] = record
            self._state.end_without_result(record, JobState.FAILED, error.message, error)

    def cancel(self, job_id: str, revocation: str | None = None) -> bool:
        with self._lock:
            if (revocation, job_id) in self._state.revocations:
                return True
            record = self._state.find(job_id)
            if record is None or record.state.final:
                return False
            if revocation is not None:
                self._state.revocations.append((revocation, job_id))
            if record.running:
                record.state = JobState.CANCELLING
            else:
                self._state.end_without_result(record, JobState.CANCELLED, CANCELLED_HELD)
            return True
