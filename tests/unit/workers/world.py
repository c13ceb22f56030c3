"""A board in memory, an engine that only writes down what it is told, and jobs claimed for it."""

import itertools

from engines.process import EngineGone
from noidle.errors import ClusterUnavailable
from noidle.jobs import EngineName, parse_job
from noidle.results import Decision
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState
from routing.board import Claim, Lease
from routing.memory_board import MemoryBoard
from workers.ending import Place
from workers.runs import Run, Runs

POOL = "cpu@here"
PLACE = Place(pool=POOL, engine=EngineName.CPU, host="here", device="d", pid=77)


class Clock:
    def __init__(self):
        self.now_s = 1_000.0

    def __call__(self):
        return self.now_s


class FakeEngine:
    """Up, in its first life, unless a test says otherwise."""

    def __init__(self):
        self.generation = 1
        self.up = True
        self.sent = []
        self.killed = []

    def send(self, op, generation=None):
        if not self.up or generation not in (None, self.generation):
            raise EngineGone("it is not up")
        self.sent.append(op)

    def kill(self, reason):
        self.killed.append(reason)


class AwayBoard:
    """A board that cannot be reached for the first `fails` calls."""

    def __init__(self, board, fails):
        self._board = board
        self.fails = fails

    def __getattr__(self, name):
        method = getattr(self._board, name)

        def call(*args, **kwargs):
            if self.fails > 0:
                self.fails -= 1
                raise ClusterUnavailable("Redis is away")
            return method(*args, **kwargs)

        return call


class World:
    """One pool's board and runs."""

    def __init__(self, **board):
        self.clock = Clock()
        self.board = MemoryBoard(clock=self.clock, **board)
        self.board.register(ModelInfo(name="echo", context=100_000))
        self.engine = FakeEngine()
        self.runs = Runs()
        self._numbers = itertools.count(1)
        self.publish()

    def publish(self, pool=POOL, **fields):
        about = {"device": "d", "slots": 8, "state": PoolState.READY, **fields}
        self.board.publish(PoolSnapshot(pool=pool, engine=EngineName.CPU, host="here", **about))

    def leased(self, pool=POOL, **fields):
        """Job and token of a new lease."""
        number = next(self._numbers)
        text = {} if "text" in fields else {"prompt": "p"}
        job = {"kind": "generate", "model": "echo", "id": f"job-{number}", **text, **fields}
        self.board.accept(parse_job(job))
        return job["id"], self.lease(job["id"], pool)

    def lease(self, job_id, pool=POOL):
        role = self.board.take_pump("r")
        self.publish(pool)
        token = f"token-{next(self._numbers):08}"
        lease = Lease(
            job=job_id,
            pool=pool,
            queue=pool,
            token=token,
            message="{}",
            slots=8,
            decision=Decision(job=job_id, at_ms=0, action="lease", pool=pool, reason="told"),
        )
        assert self.board.lease(role, [lease]) == [True]
        return token

    def claimed(self, **fields):
        """A run that the engine was told to start."""
        job_id, token = self.leased(**fields)
        claim = self.board.claim(job_id, token, POOL, 1)
        assert isinstance(claim, Claim)
        run = Run(
            token=token,
            claim=claim,
            generation=self.engine.generation,
            moved_s=self.clock(),
        )
        self.runs.add(run)
        return run

    def state(self, job_id):
        return self.board.status(job_id).state
