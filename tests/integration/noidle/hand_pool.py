"""A pool and a pump whose every move a test makes itself, over the real board."""

import secrets
from collections.abc import Iterator, Sequence

from noidle.connection import connect
from noidle.jobs import EngineName
from noidle.record import read_status
from noidle.results import Decision, JobError, JobResult, JobState, PoolVerdict, TrainReport
from noidle.snapshot import PoolSnapshot, PoolState
from routing.board import Claim, Lease, StepReport
from routing.redis_board import RedisBoard

POOL = "cpu@here"


class HandPool:
    """Leases jobs to itself and runs them as it is told."""

    def __init__(self, url: str) -> None:
        self.redis = connect(url)
        # nothing expires while a test thinks
        self.board = RedisBoard(self.redis, lease_s=600, role_s=600, snapshot_s=600)
        self.board.publish(
            PoolSnapshot(
                pool=POOL,
                engine=EngineName.CPU,
                host="here",
                device="cpu",
                slots=1000,
                state=PoolState.READY,
            )
        )
        self.tokens: dict[str, str] = {}

    def start(self, job_id: str) -> Claim:
        """Leases the job to this pool and claims it."""
        role = self.board.take_pump("router")
        assert role is not None
        token = secrets.token_hex(8)
        decision = Decision(
            job=job_id,
            at_ms=self.board.now_ms(),
            action="lease",
            pool=POOL,
            queue="cpu",
            reason="the only pool",
            verdicts=(PoolVerdict(pool=POOL, outcome="chosen", reason="free", finish_s=0.5),),
        )
        lease = Lease(
            job=job_id, pool=POOL, queue="cpu", token=token, message="{}", decision=decision
        )
        assert self.board.lease(role, [lease]) == [True]
        claim = self.board.claim(job_id, token, POOL, pid=1)
        assert isinstance(claim, Claim)
        self.tokens[job_id] = token
        return claim

    def emit(self, job_id: str, text: str, tokens: Sequence[int] = ()) -> None:
        token = self.tokens[job_id]
        report = StepReport(job=job_id, token=token, text=text, tokens=tuple(tokens))
        self.board.report(POOL, [report])

    def train_step(self, job_id: str, step: int, loss: float) -> None:
        token = self.tokens[job_id]
        report = StepReport(
            job=job_id, token=token, step=step, goal=10, loss=loss, tokens_per_s=1e3
        )
        self.board.report(POOL, [report])

    def finish(self, job_id: str, text: str = "", tokens: Sequence[int] = ()) -> None:
        self._end(JobResult(id=job_id, state=JobState.DONE, text=text, tokens=tuple(tokens)))

    def finish_score(self, job_id: str) -> None:
        self._end(JobResult(id=job_id, state=JobState.DONE, perplexity=2.5, logprobs=(-0.5, -1.0)))

    def finish_training(self, job_id: str) -> None:
        report = TrainReport(steps=10, held_out_loss_before=5.5, held_out_loss=2.25)
        self._end(
            JobResult(
                id=job_id, state=JobState.DONE, train=report, model="m", revision="step-000010-ab"
            )
        )

    def fail(self, job_id: str) -> None:
        error = JobError(code="engine", message="the engine fell")
        self._end(JobResult(id=job_id, state=JobState.FAILED, error=error))

    def stop(self, job_id: str) -> None:
        """What a pool does with a job that was cancelled."""
        self._end(JobResult(id=job_id, state=JobState.CANCELLED))

    def state(self, job_id: str) -> JobState | None:
        status = read_status(self.redis, job_id)
        return status.state if status else None

    def held(self) -> Iterator[str]:
        return (job.id for job in self.board.held(1000))

    def _end(self, result: JobResult) -> None:
        where = {"engine": EngineName.CPU, "pool": POOL, "host": "here", "device": "cpu"}
        result = result.model_copy(update=where)
        assert self.board.finish(result.id, self.tokens.pop(result.id), result)
