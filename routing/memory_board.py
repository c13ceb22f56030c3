"""The job board in this process's memory, for tests and simulation. Owns the same rules as the
board in Redis, and passes the same contract suite; knows nothing of Redis. Threads may share
one."""

import random
import time
from collections.abc import Callable

from noidle import acceptance
from noidle.results import Decision, JobResult, JobStatus, StreamEvent, Waited
from noidle.snapshot import ModelInfo, PoolDetail, PoolSnapshot
from routing.memory_acceptance import MemoryAcceptance
from routing.memory_decisions import MemoryDecisions
from routing.memory_record import to_status, to_waited
from routing.memory_running import MemoryRunning
from routing.memory_runs import MemoryRuns
from routing.memory_state import Limits, MemoryState
from routing.novelty import snapshot_mark


class MemoryBoard(MemoryAcceptance, MemoryDecisions, MemoryRunning, MemoryRuns):
    """A Board. `clock` gives seconds and stands for Redis's; `rng` draws seeds."""

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        rng: random.Random | None = None,
        lease_s: float = 8.0,
        role_s: float = 3.0,
        snapshot_s: float = 3.0,
        held_limit: int = acceptance.HELD_LIMIT,
        crash_limit: int = 3,
    ) -> None:
        limits = Limits(
            lease_ms=lease_s * 1000,
            role_ms=role_s * 1000,
            held=held_limit,
            crash_limit=crash_limit,
            rng=rng or random.Random(),
        )
        super().__init__(MemoryState(clock, snapshot_s * 1000), limits)

    def now_ms(self) -> int:
        return int(self._state.now)

    def publish(self, snapshot: PoolSnapshot, detail: PoolDetail | None = None) -> None:
        with self._lock:
            state = self._state
            present = {one.pool: snapshot_mark(one) for one, _ in state.published()}
            dated = snapshot.model_copy(update={"published_ms": int(state.now)})
            state.pools[snapshot.pool] = (state.now, dated, detail)
            if present.get(snapshot.pool) != snapshot_mark(snapshot):
                state.wake()

    def register(self, model: ModelInfo) -> None:
        with self._lock:
            known = self._state.models.known.get(model.name)
            storages = {snapshot.storage for snapshot, _ in self._state.published()}
            elsewhere = known and known.revision and known.storage != model.storage
            if known and elsewhere and known.storage in storages - {None}:
                return
            if self._state.models.set(model):
                self._state.wake()

    def forget(self, model: str, storage: str) -> bool:
        with self._lock:
            forgotten = self._state.models.forget(model, storage)
            if forgotten:
                self._state.wake()
            return forgotten

    def leave(self, pool: str) -> None:
        with self._lock:
            self._state.pools.pop(pool, None)
            self._state.wake()

    def pools(self) -> list[PoolSnapshot]:
        with self._lock:
            return [snapshot for snapshot, _ in self._state.published()]

    def details(self) -> list[PoolDetail]:
        with self._lock:
            return [detail for _, detail in self._state.published() if detail]

    def status(self, job_id: str) -> JobStatus | None:
        with self._lock:
            record = self._state.find(job_id)
            return to_status(record) if record else None

    def result(self, job_id: str) -> JobResult | None:
        with self._lock:
            record = self._state.find(job_id)
            return record.result if record else None

    def decisions(self, job_id: str) -> list[Decision]:
        with self._lock:
            record = self._state.find(job_id)
            return list(record.decisions) if record else []

    def waited(self, job_id: str) -> Waited | None:
        with self._lock:
            record = self._state.find(job_id)
            return to_waited(record, self._state.now) if record else None

    def jobs(self, limit: int) -> list[JobStatus]:
        with self._lock:
            state = self._state
            alive = [record for record in map(state.find, list(state.alive)) if record]
            leased = sorted((r for r in alive if r.pool), key=lambda record: record.lease_end)
            waiting = [record for record in reversed(alive) if not record.pool]
            ended = [record for record in map(state.find, state.ended) if record]
            # an id that was sent again is listed among the ended ones too
            shown = {record.id: record for record in (*leased, *waiting, *ended)}
            return [to_status(record) for record in shown.values()][:limit]

    def events(self, job_id: str) -> list[StreamEvent]:
        """The job's stream."""
        with self._lock:
            record = self._state.find(job_id)
            return list(record.events) if record else []

    def pop(self, queue: str) -> str | None:
        """The oldest message that leases pushed on a queue, as a worker takes it."""
        with self._lock:
            messages = self._state.queues.get(queue)
            return messages.popleft() if messages else None

    def close(self, why: str | None) -> None:
        """Closes acceptance as the pump does where Redis runs full; None opens it again."""
        self._state.full = why
