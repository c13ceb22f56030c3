"""A pump without a policy: it leases the job it is told to the pool it is told."""

import itertools

from noidle.jobs import parse_job
from noidle.results import Decision, JobResult
from noidle.snapshot import PoolState
from routing.board import Lease
from routing.message import lease_message
from routing.redis_board import RedisBoard
from tests.integration.workers.processes import until


class Lender:
    """Accepts and leases; the pools do the rest."""

    # no two jobs of a run have the same id, whatever server they are on
    _numbers = itertools.count(1)

    def __init__(self, board: RedisBoard) -> None:
        self.board = board

    def ready(self, pool: str) -> bool:
        return any(one.pool == pool and one.state is PoolState.READY for one in self.board.pools())

    def wait_for(self, pool: str) -> None:
        until(lambda: self.ready(pool), f"{pool} is ready")

    def accept(self, **fields: object) -> str:
        job = {
            "kind": "generate",
            "model": "echo",
            "prompt": "one two three",
            "id": f"job-{next(self._numbers)}",
            **fields,
        }
        self.board.accept(parse_job({name: value for name, value in job.items() if value}))
        return str(job["id"])

    def lease(
        self, job_id: str, pool: str, *, queue: str | None = None, slots: int = 64
    ) -> str | None:
        """The token, or None if the board did not grant it."""
        role = self.board.take_pump("lender")
        status = self.board.status(job_id)
        assert role is not None
        assert status is not None
        token = f"token-{next(self._numbers):08}"
        queue = queue or pool
        granted = self.board.lease(
            role,
            [
                Lease(
                    job=job_id,
                    pool=pool,
                    queue=queue,
                    token=token,
                    message=lease_message(
                        job_id=job_id, kind=status.kind, token=token, queue=queue, origin="lender"
                    ),
                    slots=slots,
                    decision=Decision(
                        job=job_id, at_ms=0, action="lease", pool=pool, reason="the test says so"
                    ),
                )
            ],
        )
        return token if granted[0] else None

    def run(self, pool: str, **fields: object) -> str:
        """Accepts a job and leases it as soon as the pool takes leases; its id."""
        job_id = self.accept(**fields)
        until(lambda: self.lease(job_id, pool), f"{pool} gets {job_id}")
        return job_id

    def reap(self) -> list[str]:
        role = self.board.take_pump("lender")
        assert role is not None
        return self.board.reap(role)

    def result(self, job_id: str) -> JobResult:
        until(lambda: self.board.result(job_id), f"a result of {job_id}")
        result = self.board.result(job_id)
        assert result is not None
        return result
