"""A cluster of two pools whose board remembers what its pump saw, wished and got, and what must
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
from routing.order import RANKS
from routing.pump import Pump
from routing.running import Preemption, RunningJob
from tests.contract.board_world import ECHO, Cluster, World, snapshot

SLOTS = {"cpu@here": 1, "gpu@there": 3}
KV_TOKENS = {"cpu@here": 64, "gpu@there": 128}
RATES = Rates(prefill_tokens_per_s=1000.0, step_s=0.01, step_s_per_sequence=0.0)
CRASH_LIMIT = 3
WISHES_KEPT = 16


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


class Watched:
    """A board that remembers what its pump saw, wished and got."""

    def __init__(self, board: Board) -> None:
        self._board = board
        self.seen: list[HeldJob] = []
        self.granted: list[Lease] = []
        self.wishes: list[Lease] = []
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
        answers = self._board.lease(role, leases)
        self.wishes = [*self.wishes, *leases][-WISHES_KEPT:]
        self.granted += [one for one, yes in zip(leases, answers, strict=True) if yes]
        return answers


class WatchedCluster(RuleBasedStateMachine):
    """Two pools, a pump, and what must hold whatever is done to them."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.cluster = Cluster(world, world.board(crash_limit=CRASH_LIMIT))
        self.board = Watched(self.cluster.board)
        self.board.register(ECHO)
        self.board.register(ModelInfo(name="mini", revision="0", storage="disk", context=1000))
        self.clock_s = 0.0
        self.tokens = random.Random(0)
        self.jobs: dict[str, Seen] = {}
        # of leases that were granted, by token
        self.leases: dict[str, Lease] = {}
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

    def publish(self) -> None:
        for pool, slots in SLOTS.items():
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
                )
            )

    def take_note(self) -> None:
        for lease in self.board.granted:
            assert lease.token not in self.leases
            self.leases[lease.token] = lease
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

    def check_order(self) -> None:
        """Within a set nobody passes one before it who needs no more than it does; but for those
        that were to go where room is kept for another."""
        if self.served & {job.id for job in self.board.seen}:
            return
        granted = {lease.job for lease in self.board.granted}
        before: dict[tuple[Any, ...], list[HeldJob]] = {}
        for job in sorted(self.board.seen, key=_turn):
            ahead = before.setdefault(_set_of(job), [])
            if job.id in granted:
                passed = [one.id for one in ahead if one.id not in granted]
                assert not passed, f"{job.id} passed {passed}"
            ahead.append(job)

    @invariant()
    def limits_hold(self) -> None:
        statuses = self.statuses().values()
        loads = self.board.loads()
        for pool, slots in SLOTS.items():
            inside = [one for one in statuses if one.pool == pool and not one.state.final]
            load = loads.get(pool, PoolLoad())
            assert load.in_flight == len(inside) <= slots
            assert load.kv_tokens <= KV_TOKENS[pool]
            assert not load.alone or len(inside) == 1

    @invariant()
    def nothing_is_lost(self) -> None:
        held = Counter(job.id for job in self.board.held(1000))
        for job_id, status in self.statuses().items():
            assert held[job_id] == (status.state is JobState.HELD), (job_id, status.state)
            assert (status.pool is not None) or status.state not in _IN_A_POOL
            result = self.board.result(job_id)
            assert (result is not None) == status.state.final
            job = self.jobs[job_id]
            assert job.result in (None, result), "a result never changes"
            job.result = result

    def statuses(self) -> dict[str, JobStatus]:
        found = {job_id: self.board.status(job_id) for job_id in self.jobs}
        assert all(found.values())
        return {job_id: status for job_id, status in found.items() if status}

    def claimed_leases(self) -> list[Lease]:
        """Those that go on as far as their pools know, and two that are over: a late word."""
        going = [token for token in self.claimed if token not in self.over]
        return [self.leases[token] for token in (*going, *self.over[-2:])]

    @staticmethod
    def pick(leases: Iterable[Lease], number: int) -> Lease:
        found = list(leases)
        return found[number % len(found)]


_IN_A_POOL = (JobState.LEASED, JobState.RUNNING, JobState.CANCELLING)


def _turn(job: HeldJob) -> tuple[float, int]:
    """Trainings that had equal service are served as they came back."""
    return job.order, job.held_since_ms


def _set_of(job: HeldJob) -> tuple[Any, ...]:
    size = (job.prompt_bytes, job.max_tokens)
    return job.job_class, job.kind, job.model, job.engine, job.storage, size, job.alone
