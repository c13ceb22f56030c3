"""The moves of a job in the memory board: held, released, crashed, ended. Owns the records and
what must change with them; knows nothing of who asks. The Lua parts base, ending and crash say
the same for Redis."""

import heapq
import random
import threading
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from noidle.profile import ProfileName
from noidle.results import JobError, JobResult, JobState, StreamEvent
from noidle.snapshot import PoolDetail, PoolSnapshot, RouterDetail
from routing.board import PumpRole
from routing.bounds import ENDED_KEPT, LONE_FALLS_LIMIT, RUNS_KEPT, SHARED_FALLS_FREE
from routing.ended import Run
from routing.memory_record import Record, has_links, with_times
from routing.memory_shelves import HeldSets, Models, Promises
from routing.outcome import CANCELLED_RUNNING, EXPIRED, overdue_held


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a board was made with."""

    lease_ms: float
    role_ms: float
    held: int
    crash_limit: int
    rng: random.Random


class MemoryState:
    """Everything a board keeps; its callers hold the lock."""

    def __init__(self, clock: Callable[[], float], snapshot_ms: float) -> None:
        self._clock = clock
        self._snapshot_ms = snapshot_ms
        self.lock = threading.RLock()
        self._woken = threading.Condition(self.lock)
        self._work = False
        self.records: dict[str, Record] = {}
        self.held = HeldSets()
        self.promises = Promises()
        self.models = Models()
        self.alive: dict[str, None] = {}
        self.expiries: list[tuple[float, str]] = []
        self.deadlines: list[tuple[float, str]] = []
        self.ended: deque[str] = deque(maxlen=ENDED_KEPT)
        # name and job of each that was carried out
        self.revocations: deque[tuple[str, str]] = deque(maxlen=ENDED_KEPT)
        self.after: deque[str] = deque()
        self.profile = ProfileName.RESPONSE_FIRST
        self.weights: dict[str, float] = {}
        self.told: tuple[float, RouterDetail | None] = 0.0, None
        self.runs: deque[Run] = deque(maxlen=RUNS_KEPT)
        self.queues: dict[str, deque[str]] = {}
        self.role: PumpRole | None = None
        self.role_end = 0.0
        self.fence = 0
        self._last_order = 0.0
        self.pools: dict[str, tuple[float, PoolSnapshot, PoolDetail | None]] = {}
        # jobs whose links a router is sending, and since when
        self.taken: dict[str, float] = {}
        self.reaped: float | None = None
        self.turn = 0
        # why acceptance is closed
        self.full: str | None = None

    @property
    def now(self) -> float:
        return self._clock() * 1000

    def wake(self) -> None:
        with self._woken:
            self._work = True
            self._woken.notify_all()

    def wait(self, timeout_s: float) -> bool:
        with self._woken:
            found = self._woken.wait_for(lambda: self._work, timeout_s)
            self._work = False
            return found

    def published(self) -> list[tuple[PoolSnapshot, PoolDetail | None]]:
        """What is not older than its time-to-live."""
        oldest = self.now - self._snapshot_ms
        self.pools = {pool: entry for pool, entry in self.pools.items() if entry[0] > oldest}
        return [(snapshot, detail) for _, snapshot, detail in self.pools.values()]

    def find(self, job_id: str) -> Record | None:
        record = self.records.get(job_id)
        if record is not None and record.gone(self.now):
            del self.records[job_id]
            return None
        return record

    def arrival(self) -> float:
        """The order of a new job: first come first, also within one tick of the clock."""
        self._last_order = max(self.now, self._last_order + 0.001)
        return self._last_order

    def holds(self, role: PumpRole) -> bool:
        return role == self.role and self.now < self.role_end

    def add(self, record: Record) -> None:
        self.records[record.id] = record
        self.alive[record.id] = None
        record.held_since = self.now
        if record.expires_at is not None:
            heapq.heappush(self.expiries, (record.expires_at, record.id))
        if record.deadline_at is not None:
            heapq.heappush(self.deadlines, (record.deadline_at, record.id))
        self.held.add(record.held_set, record.order, record.id)
        self.wake()

    def hold_again(self, record: Record) -> None:
        self.release(record)
        record.state = JobState.HELD
        record.held_since = self.now
        record.token = record.pool = record.leave = None
        record.moved = False
        self.held.add(record.held_set, record.order, record.id)
        self.wake()

    def release(self, record: Record) -> None:
        assert record.pool is not None
        self.promises.remove(record.pool, record.id)

    def running(self, job_id: str, token: str) -> Record | None:
        """The record, if this token is the one it runs under."""
        record = self.find(job_id)
        return record if record and record.running and record.token == token else None

    def end_expired(self, later_ms: float) -> None:
        """Ends what waited too long; an expired job that has a lease is looked at again later."""
        now = self.now
        while self.expiries and self.expiries[0][0] <= now:
            _, job_id = heapq.heappop(self.expiries)
            record = self.find(job_id)
            if record is None or record.expires_at is None or record.expires_at > now:
                continue
            if record.state is JobState.HELD:
                self.end_without_result(record, JobState.EXPIRED, EXPIRED)
            elif record.state is JobState.LEASED:
                heapq.heappush(self.expiries, (now + later_ms, job_id))

    def end_overdue(self, later_ms: float) -> None:
        """Ends what waits past its deadline; what runs may be held again, and is looked at
        later."""
        while self.deadlines and self.deadlines[0][0] <= self.now:
            _, job_id = heapq.heappop(self.deadlines)
            record = self.find(job_id)
            if record is None or not self.late(record):
                continue
            if record.running:
                heapq.heappush(self.deadlines, (self.now + later_ms, job_id))
            elif not record.state.final:
                self.end_late(record)

    def late(self, record: Record) -> bool:
        return record.deadline_at is not None and self.now >= record.deadline_at

    def end_late(self, record: Record) -> None:
        assert record.job is not None
        assert record.job.deadline_s is not None
        error = overdue_held(record.job.deadline_s)
        self.end_without_result(record, JobState.FAILED, error.message, error)

    def crashed(self, record: Record, limit: int) -> None:
        """Whose crash it was cannot be known while runs share an engine: those that had got
        nowhere run alone the next time, and only what crashes alone counts."""
        if record.state is JobState.CANCELLING:
            self.end_without_result(record, JobState.CANCELLED, CANCELLED_RUNNING)
            return
        assert record.pool is not None
        if self.promises.shared(record.pool, record.id):
            record.falls += 1
            record.alone |= not record.moved or record.falls > SHARED_FALLS_FREE
        else:
            record.lone_falls += 1
            record.crashes += not record.moved
            record.alone = True
            if record.crashes >= limit or record.lone_falls >= LONE_FALLS_LIMIT:
                error = _crash_error(record)
                self.end_without_result(record, JobState.FAILED, error.message, error)
                return
        self.hold_again(record)

    def end_without_result(
        self, record: Record, state: JobState, why: str, error: JobError | None = None
    ) -> None:
        job = record.job
        result = JobResult(
            id=record.id,
            kind=record.kind,
            state=state,
            error=error,
            model=job.model if job else None,
            pool=record.pool,
            attempt=record.attempt,
            seed=record.seed,
        )
        self.end(record, result, why)

    def end(self, record: Record, result: JobResult, why: str) -> None:
        record.result = with_times(record, result, self.now)
        if record.state is JobState.HELD and record.held_set:
            self.held.remove(record.held_set, record.order, record.id)
            record.end_wait(self.now)
            record.held_ms += max(0.0, self.now - record.held_since)
        elif record.pool:
            self.release(record)
        if record.kind == "train" and record.job and result.state is not JobState.DONE:
            self.models.forget_planned(record.job.model, record.id)
        self.alive.pop(record.id, None)
        record.state = result.state
        record.ended = self.now
        record.token = record.leave = None
        record.why = why or None
        record.events.append(StreamEvent(end=result.state))
        self.ended.appendleft(record.id)
        if has_links(record.envelope):
            record.settled = False
            self.after.append(record.id)
        self.wake()


class MemoryPart:
    """What the parts of the board share."""

    def __init__(self, state: MemoryState, limits: Limits) -> None:
        self._state = state
        self._limits = limits
        self._lock = state.lock


def _crash_error(record: Record) -> JobError:
    times = max(record.crashes, record.lone_falls)
    message = (
        f"its engine crashed {times} times while it ran there alone,"
        f" the last time in pool {record.pool}: its log says why"
    )
    return JobError(code="crashed", message=message)
