"""A cluster of three pools whose board remembers what its pump saw, wished and got, and what must
hold in it whatever happens. Knows nothing of what does."""

import random
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from hypothesis.stateful import RuleBasedStateMachine, invariant

from noidle.results import JobResult, JobState, JobStatus
from noidle.snapshot import ModelInfo, PoolState, Rates
from routing.board import Board, HeldJob, Lease, PoolLoad, PumpRole
from routing.bounds import PREEMPTIONS_IN_A_ROW
from routing.ended import Run
from routing.order import HORIZON_MS, RANKS
from routing.pump import Pump
from routing.running import Preemption, RunningJob
from tests.contract.board_world import ECHO, Cluster, World, snapshot

SLOTS = {"cpu@here": 1, "cuda@there": 2, "gpu@there": 3}
KV_TOKENS = {"cpu@here": 64, "cuda@there": 64, "gpu@there": 112}
QUEUES = ("cpu", "cuda", "gpu", *SLOTS)
CARD = {"cuda@there", "gpu@there"}
"""These share a device, and its memory."""
CARD_BYTES = 350
RUN_BYTES = 100
DEADLINE_S = 1000.0
LIFT_S = 600.0
RATES = Rates(prefill_tokens_per_s=1000.0, step_s=0.01, step_s_per_sequence=0.0)
CRASH_LIMIT = 3
ALL = 1000
"""More jobs than any run of the machine has."""


@dataclass(slots=True, kw_only=True)
class Seen:
    """What one accepted job has been through, as its pools and its producer saw it."""

    attempt: int = 0
    tokens: list[int] = field(default_factory=list)
    step: int = 0
    # times it was asked to make room since its last whole slice, and whether it is asked now
    row: int = 0
    asked: bool = False
    result: JobResult | None = None
    # when it was accepted, by the seconds that were let pass, and whether it has a deadline
    at_s: float = 0.0
    due: bool = False


class Watched:
    """A board that remembers what its pump saw, wished and got."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.seen: list[HeldJob] = []
        self.granted: list[Lease] = []
        # by pool, the last wish
        self.wishes: dict[str, Lease] = {}
        # runs that were to make room, as they were before, and for whom
        self.asked: list[tuple[RunningJob, str]] = []
        self._running: list[RunningJob] = []

    def __getattr__(self, name: str) -> Any:
        return getattr(self._board, name)

    def waiting(self, per_set: int) -> tuple[list[HeldJob], dict[str, PoolLoad]]:
        self.seen, loads = self._board.waiting(per_set)
        return self.seen, loads

    def running(self, pools: list[str]) -> list[RunningJob]:
        self._running = self._board.running(pools)
        return self._running

    def preempt(self, role: PumpRole, wishes: list[Preemption]) -> list[bool]:
        answers = self._board.preempt(role, wishes)
        runs = {run.id: run for run in self._running}
        for wish, yes in zip(wishes, answers, strict=True):
            if yes:
                assert wish.for_job is not None
                self.asked.append((runs[wish.job], wish.for_job))
        return answers

    def lease(self, role: PumpRole, leases: list[Lease]) -> list[bool]:
        before = {status.id: status.state for status in self._board.jobs(ALL)}
        answers = self._board.lease(role, leases)
        self.wishes |= {one.pool: one for one in leases}
        granted = [one for one, yes in zip(leases, answers, strict=True) if yes]
        jobs = [one.job for one in granted]
        assert len(jobs) == len(set(jobs)), "leased twice at once"
        for job in jobs:
            assert before[job] is JobState.HELD, "leased while it had a lease"
        self.granted += granted
        return answers

    def runs(self) -> list[Run]:
        """Nothing is learned, so that no pool is taken for slower than another."""
        self._board.runs()
        return []


class WatchedCluster(RuleBasedStateMachine):
    """Three pools, a pump, and what must hold whatever is done to them."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.cluster = Cluster(world, world.board(crash_limit=CRASH_LIMIT))
        self.board = Watched(self.cluster.board)
        self.board.register(ECHO)
        self.board.register(ModelInfo(name="mini", revision="0", storage="disk", context=1000))
        self.clock_s = 0.0
        # seconds that were let pass
        self.passed_s = 0.0
        self.tokens = random.Random(0)
        self.jobs: dict[str, Seen] = {}
        # of leases that were granted, by token; the last one of each job
        self.leases: dict[str, Lease] = {}
        self.latest: dict[str, Lease] = {}
        # jobs that room was made for
        self.served: set[str] = set()
        # tokens, oldest first
        self.claimed: list[str] = []
        self.over: list[str] = []
        self.draining: set[str] = set()
        self.routers = 0
        self.pump = self.new_pump()

    def new_pump(self) -> Pump:
        if self.routers == 0:
            self.board.give_up_pump(self.cluster.role)
        self.routers += 1
        return Pump(
            self.board,
            f"router-{self.routers}",
            clock=lambda: self.clock_s,
            token=lambda: self.tokens.randbytes(8).hex(),
        )

    def free_bytes(self) -> int:
        """What is measured of the card: what was claimed shows in it."""
        return CARD_BYTES - sum(
            self.latest[job].memory_bytes
            for job, status in self.statuses().items()
            if status.pool in CARD and status.state in (JobState.RUNNING, JobState.CANCELLING)
        )

    def publish(self) -> None:
        free_bytes = self.free_bytes()
        for pool, slots in SLOTS.items():
            card = {
                "device": "card",
                "memory_free_bytes": free_bytes,
                "working_bytes": RUN_BYTES,
            }
            state = PoolState.DRAINING if pool in self.draining else PoolState.READY
            self.board.publish(
                snapshot(
                    pool,
                    slots=slots,
                    state=state,
                    storage="disk",
                    loaded=("echo",),
                    rates=RATES,
                    kv_tokens_total=KV_TOKENS[pool],
                    **(card if pool in CARD else {}),
                )
            )

    def take_note(self) -> None:
        for lease in self.board.granted:
            assert lease.token not in self.leases
            self.leases[lease.token] = self.latest[lease.job] = lease
        self.board.granted = []
        for run, other in self.board.asked:
            self.note_asked(run, other)
        self.board.asked = []

    def note_asked(self, run: RunningJob, other: str) -> None:
        """Only what is lower and not protected makes room."""
        job, status = self.jobs[run.id], self.statuses()
        self.served.add(other)
        if not run.leaving:
            assert status[other].state is JobState.HELD
            assert RANKS[status[other].job_class] < RANKS[run.job_class]
            job.row += 1
            assert job.row == run.preemptions + 1 <= PREEMPTIONS_IN_A_ROW
        job.asked = status[run.id].state is JobState.RUNNING

    def check_order(self, now_ms: int) -> None:
        """Nobody passes one before it, of its class or a higher one, who needs no more than it
        does: only what is smaller fits behind. But for those that were to go where room is kept
        for another, and for what waited so long that it was lifted."""
        if self.served & {job.id for job in self.board.seen}:
            return
        granted = {lease.job for lease in self.board.granted}
        for job in self.board.seen:
            old = now_ms - job.held_since_ms >= 1000 * LIFT_S
            if job.id in granted and not old:
                ahead = [one.id for one in self.board.seen if _must_precede(one, job)]
                passed = [one for one in ahead if one not in granted]
                assert not passed, f"{job.id} passed {passed}"

    @invariant()
    def every_promise_holds(self) -> None:
        statuses = self.statuses()
        self.limits_hold(statuses)
        self.nothing_is_lost(statuses)

    def limits_hold(self, statuses: dict[str, JobStatus]) -> None:
        """By what was granted, and by what the board itself counts."""
        loads = self.board.loads()
        inside = {
            pool: [
                self.latest[job]
                for job, status in statuses.items()
                if status.pool == pool and not status.state.final
            ]
            for pool in SLOTS
        }
        for pool, slots in SLOTS.items():
            load = loads.get(pool, PoolLoad())
            assert load.in_flight == len(inside[pool]) <= slots
            kv_tokens = sum(one.kv_tokens for one in inside[pool])
            assert load.kv_tokens == kv_tokens <= KV_TOKENS[pool]
            assert not load.alone or len(inside[pool]) == 1
        assert sum(one.memory_bytes for pool in CARD for one in inside[pool]) <= CARD_BYTES

    def nothing_is_lost(self, statuses: dict[str, JobStatus]) -> None:
        held = Counter(job.id for job in self.board.held(ALL))
        for job_id, status in statuses.items():
            waits = status.state is JobState.HELD
            # one that was late has just been ended by the reading itself
            assert held[job_id] == waits or (waits and self.is_late(job_id)), (job_id, status)
            assert (status.pool is not None) or status.state not in _IN_A_POOL
            job = self.jobs[job_id]
            if status.state.final and job.result is None:
                job.result = self.board.result(job_id)
                assert job.result is not None
                assert job.result.state is status.state

    def is_late(self, job_id: str) -> bool:
        job = self.jobs[job_id]
        return job.due and self.passed_s - job.at_s >= DEADLINE_S

    def nothing_has_changed_since(self) -> None:
        """What ended has ended; each lease sent one message."""
        for job_id, job in self.jobs.items():
            assert self.board.result(job_id) == job.result, "a result never changes"
        messages = 0
        for queue in QUEUES:
            while self.cluster.world.pop(queue) is not None:
                messages += 1
        assert messages == len(self.leases)

    def statuses(self) -> dict[str, JobStatus]:
        found = {status.id: status for status in self.board.jobs(ALL)}
        assert found.keys() == self.jobs.keys()
        return found

    def claimed_leases(self) -> list[Lease]:
        """Those that go on as far as their pools know, and two that are over: a late word."""
        going = [token for token in self.claimed if token not in self.over]
        return [self.leases[token] for token in (*going, *self.over[-2:])]

    @staticmethod
    def pick(leases: Iterable[Lease], number: int) -> Lease:
        found = list(leases)
        return found[number % len(found)]


_IN_A_POOL = (JobState.LEASED, JobState.RUNNING, JobState.CANCELLING)


def _must_precede(one: HeldJob, other: HeldJob) -> bool:
    if one.id == other.id or _demand(one) != _demand(other) or one.alone:
        return False
    if one.prompt_bytes > other.prompt_bytes or one.max_tokens > other.max_tokens:
        return False
    return _turn(one) < _turn(other)


def _demand(job: HeldJob) -> tuple[Any, ...]:
    """What decides where it could run, but for its size. Trainings take turns by service."""
    return job.kind, job.model, job.engine, job.storage, job.alone


def _turn(job: HeldJob) -> tuple[float, ...]:
    """Trainings that had equal service are served as they came back."""
    due_ms = job.accepted_ms if job.deadline_ms is None else job.deadline_ms - HORIZON_MS
    arrived = 0 if job.kind == "train" else min(job.accepted_ms, due_ms)
    return RANKS[job.job_class], arrived, job.order, job.held_since_ms
