"""The part of the memory board that looks into pools and takes leases back. Owns the rules of the
scripts running and preempt; knows nothing of who is taken back for whom."""

from noidle.acceptance import goal
from noidle.results import JobState
from routing.board import PumpRole
from routing.bounds import DECISIONS_KEPT, PREEMPTIONS_IN_A_ROW
from routing.memory_record import Record
from routing.memory_state import MemoryPart
from routing.novelty import mark
from routing.order import RANKS
from routing.running import Preemption, RunningJob


class MemoryRunning(MemoryPart):
    """A part of a Board."""

    def running(self, pools: list[str]) -> list[RunningJob]:
        with self._lock:
            state = self._state
            found = [
                (pool, state.records[job]) for pool in pools for job in state.promises.jobs(pool)
            ]
            return [self._shown(pool, record) for pool, record in found]

    def _shown(self, pool: str, record: Record) -> RunningJob:
        job = record.job
        assert job is not None
        assert record.token is not None
        promise = self._state.promises.of(pool, record.id)
        return RunningJob(
            id=job.id,
            kind=job.kind,
            model=job.model,
            job_class=job.job_class,
            pool=pool,
            token=record.token,
            claimed_ms=None if promise.claimed is None else int(promise.claimed),
            kv_tokens=promise.kv_tokens,
            memory_bytes=promise.memory_bytes,
            progress=record.step or len(record.tokens),
            goal=goal(job),
            preemptions=record.row,
            leaving=record.leave is not None or record.state is JobState.CANCELLING,
        )

    def preempt(self, role: PumpRole, wishes: list[Preemption]) -> list[bool]:
        with self._lock:
            if not self._state.holds(role):
                return [False] * len(wishes)
            return [self._preempt(wish) for wish in wishes]

    def _preempt(self, wish: Preemption) -> bool:
        record = self._state.find(wish.job)
        going = record and record.state in (JobState.LEASED, JobState.RUNNING)
        if record is None or not going or record.token != wish.token:
            return False
        if record.leave is not None:
            # asked already: at most it is to free more than it was
            record.leave = record.leave or wish.free_memory
            return True
        if not self._may(record, wish.for_job):
            return False
        record.preemptions += 1
        record.row += 1
        record.said = mark(wish.decision)
        record.decisions = [wish.decision, *record.decisions[: DECISIONS_KEPT - 1]]
        if record.state is JobState.LEASED:
            self._state.hold_again(record)
        else:
            record.leave = wish.free_memory
        return True

    def _may(self, record: Record, for_job: str | None) -> bool:
        """Only what is higher and still waits may take from what is lower and not protected.
        Memory that runs out asks nobody."""
        if for_job is None:
            return True
        other = self._state.find(for_job)
        if other is None or other.job is None or other.state is not JobState.HELD:
            return False
        assert record.job is not None
        higher = RANKS[other.job.job_class] < RANKS[record.job.job_class]
        return higher and record.row < PREEMPTIONS_IN_A_ROW
