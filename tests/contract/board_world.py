"""The two boards, each in a small world that can let time pass and be looked at from outside."""

from collections.abc import Callable
from typing import Any, Protocol, cast

from noidle import keys, record
from noidle.connection import connect
from noidle.jobs import EngineName, parse_job
from noidle.results import Decision, JobResult, JobState, StreamEvent
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState
from routing.board import AnyJob, Board, Claim, Lease, PumpRole
from routing.memory_board import MemoryBoard
from routing.redis_board import RedisBoard
from tests.contract.aging import age

POOL = "cpu@here"
# a hundred times the usual, so that the seconds a test really takes decide nothing
LENGTHS = {"lease_s": 800.0, "role_s": 300.0, "snapshot_s": 300.0}
ECHO = ModelInfo(name="echo", context=1000)


class World(Protocol):
    """What a test does to a board beside calling it."""

    def board(self, **settings: Any) -> Board: ...

    def pass_time(self, seconds: float) -> None: ...

    def events(self, job_id: str) -> list[StreamEvent]: ...

    def pop(self, queue: str) -> str | None: ...

    def close(self, why: str) -> None: ...


class MemoryWorld:
    """A board in memory, on a clock that stands still."""

    def __init__(self) -> None:
        self._now_s = 1_800_000_000.0
        self._board = MemoryBoard(clock=lambda: self._now_s, **LENGTHS)

    def board(self, **settings: Any) -> Board:
        self._board = MemoryBoard(clock=lambda: self._now_s, **{**LENGTHS, **settings})
        return self._board

    def pass_time(self, seconds: float) -> None:
        self._now_s += seconds

    def events(self, job_id: str) -> list[StreamEvent]:
        return self._board.events(job_id)

    def pop(self, queue: str) -> str | None:
        return self._board.pop(queue)

    def close(self, why: str) -> None:
        self._board.close(why)


class RedisWorld:
    """A board in a real server. Time passes by moving every moment it keeps into the past."""

    def __init__(self, url: str) -> None:
        self._url = url
        self.client = connect(url)

    def board(self, **settings: Any) -> Board:
        return RedisBoard(self.client, **{**LENGTHS, **settings})

    def pass_time(self, seconds: float) -> None:
        age(self.client, seconds * 1000)

    def events(self, job_id: str) -> list[StreamEvent]:
        return [event for _, event in record.read_events(self.client, job_id)]

    def pop(self, queue: str) -> str | None:
        return cast("str | None", self.client.rpop(queue))

    def close(self, why: str) -> None:
        self.client.set(keys.FULL, why, px=3000)


def generate(job_id: str, **fields: Any) -> AnyJob:
    return parse_job(
        {"kind": "generate", "id": job_id, "model": "echo", "prompt": "one two", **fields}
    )


def train(job_id: str, **fields: Any) -> AnyJob:
    data = {"kind": "train", "id": job_id, "model": "mini", "text": "some text", "steps": 100}
    return parse_job({**data, **fields})


def snapshot(pool: str = POOL, **fields: Any) -> PoolSnapshot:
    data = {
        "pool": pool,
        "engine": EngineName.CPU,
        "host": pool.partition("@")[2],
        "device": "cpu",
        "slots": 4,
        "state": PoolState.READY,
        "models": ("echo", "mini"),
    }
    return PoolSnapshot(**{**data, **fields})


def decision(job_id: str, action: str = "lease", reason: str = "earliest finish") -> Decision:
    return Decision(job=job_id, at_ms=1, action=action, pool=POOL, reason=reason)


def lease_of(job_id: str, token: str, pool: str = POOL, **fields: Any) -> Lease:
    data = {
        "queue": "cpu",
        "message": f"message of {token}",
        "slots": 4,
        "decision": decision(job_id),
    }
    return Lease(job=job_id, token=token, pool=pool, **{**data, **fields})


class Cluster:
    """A board with one published pool and the pump's role, and the steps most tests take."""

    def __init__(self, world: World, board: Board) -> None:
        self.world = world
        self.board = board
        self.board.publish(snapshot())
        self.role = self.take_role()

    def take_role(self, router: str = "router") -> PumpRole:
        role = self.board.take_pump(router)
        assert role is not None
        return role

    def refresh(self) -> None:
        """The pool publishes and the router renews its role, as both do all the time."""
        self.board.publish(snapshot())
        self.role = self.take_role()

    def accept(self, *jobs: AnyJob) -> None:
        for job in jobs:
            assert self.board.accept(job)

    def lease(self, job_id: str, token: str = "", **fields: Any) -> bool:
        wish = lease_of(job_id, token or f"token-{job_id}", **fields)
        return self.board.lease(self.role, [wish])[0]

    def start(self, job_id: str, token: str = "", pool: str = POOL, **fields: Any) -> Claim:
        """Leases and claims."""
        token = token or f"token-{job_id}"
        assert self.lease(job_id, token, pool=pool, **fields)
        claim = self.board.claim(job_id, token, pool, 1)
        assert isinstance(claim, Claim)
        return claim

    def finish(self, job_id: str, token: str = "", **fields: Any) -> bool:
        result = JobResult(**{"id": job_id, "kind": "generate", "state": JobState.DONE, **fields})
        return self.board.finish(job_id, token or f"token-{job_id}", result)

    def state(self, job_id: str) -> JobState | None:
        status = self.board.status(job_id)
        return status.state if status else None

    def held(self) -> list[str]:
        return [job.id for job in self.board.held(32)]

    def lose(self) -> list[str]:
        """Every lease runs out, under a reaper that passes as often as it should."""
        self.board.reap(self.role)
        found: list[str] = []
        for _ in range(3):
            self.world.pass_time(350)
            self.refresh()
            found += self.board.reap(self.role)
        return found


ClusterMaker = Callable[..., Cluster]
