"""What one task thread does for one lease: claim it, hand it to the engine, wait for the end.

Everything that is written after a claim is the board loop's. Knows nothing of Celery."""

import logging
import os
import time
from collections.abc import Callable
from typing import Protocol

from engines.process import EngineGone
from engines.protocol import AnyEvent, AnyOp, CheckpointRef, Dropped, Failed, ProtocolError, Start
from noidle.errors import ClusterUnavailable
from noidle.results import JobError
from routing.board import Board, Claim, Refusal
from workers.runs import Ending, Outcome, Run, Runs

LOG = logging.getLogger("noidle.pool")
PAUSE_S = 0.2


class Engine(Protocol):
    """What a task thread asks of the engine process."""

    @property
    def generation(self) -> int: ...

    def send(self, op: AnyOp, generation: int | None = None) -> None: ...


class Work:
    """Shared by all task threads of a pool."""

    def __init__(
        self,
        board: Board,
        engine: Engine,
        runs: Runs,
        *,
        pool: str,
        hear: Callable[[AnyEvent], None],
        pause: Callable[[float], bool],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """`hear` takes what is to be treated as the engine's word; `pause` waits and says
        whether the pool takes no more work."""
        self._board = board
        self._hear = hear
        self._engine = engine
        self._runs = runs
        self._pool = pool
        self._pause = pause
        self._clock = clock

    def do(self, job_id: str, token: str) -> Outcome | Refusal:
        """Blocks until the run has left this pool, whatever became of it."""
        claim = self._claim(job_id, token)
        if isinstance(claim, Refusal):
            return claim
        run = Run(
            token=token,
            claim=claim,
            generation=self._engine.generation,
            moved_s=self._clock(),
        )
        if not self._runs.add(run):
            # the same message came twice; its first thread has the run
            return Outcome(ending=Ending.LOST)
        try:
            if self._pause(0):
                raise EngineGone("the pool takes no more work")
            self._engine.send(_start(run), run.generation)
        except EngineGone as error:
            self._give_back(run, error)
        except ProtocolError as error:
            # no engine will ever get it: the job's fault, not the engine's
            self._hear(Failed(run=token, error=JobError(code="engine", message=str(error))))
        except BaseException as error:
            self._give_back(run, error)
            raise
        return run.wait()

    def _claim(self, job_id: str, token: str) -> Claim | Refusal:
        in_doubt = False
        while not self._pause(0):
            try:
                claim = self._board.claim(job_id, token, self._pool, os.getpid())
            except ClusterUnavailable as error:
                LOG.warning("job %s is not claimed yet: %s", job_id, error, extra={"job": job_id})
                in_doubt = True
                self._pause(PAUSE_S)
                continue
            if in_doubt and isinstance(claim, Refusal) and self._runs.get(token) is None:
                # a call whose answer was lost may have claimed it, for nobody
                self._hand_back(job_id, token)
            return claim
        # a lease that nobody claims goes back without counting; sooner if Redis can be told
        self._hand_back(job_id, token)
        return Refusal(reason="leaving")

    def _give_back(self, run: Run, error: BaseException) -> None:
        """The run never started."""
        LOG.warning("job %s goes back: %s", run.job_id, error, extra={"job": run.job_id})
        self._hear(Dropped(run=run.token))

    def _hand_back(self, job_id: str, token: str) -> None:
        try:
            self._board.hand_back(job_id, token)
        except ClusterUnavailable as error:
            LOG.warning("the lease of job %s runs out by itself: %s", job_id, error)


def _start(run: Run) -> Start:
    claim = run.claim
    found = claim.checkpoint
    return Start.of(
        run.token,
        claim.job,
        claim.seed,
        attempt=claim.attempt,
        text=claim.text,
        tokens=claim.tokens,
        revision=claim.revision,
        checkpoint=found and CheckpointRef(name=found.name, storage=found.storage, step=found.step),
        token8=run.token[:8],
    )
