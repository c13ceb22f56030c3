"""How the board is told that a run left its pool.

Knows nothing of engines or of when a run leaves."""

import logging
from collections.abc import Callable

from engines.protocol import Done, Failed, Yield
from noidle.errors import ClusterUnavailable
from noidle.results import JobResult
from routing.board import Board, Checkpoint
from workers import ending
from workers.departure import Back, Departure
from workers.ending import Place
from workers.runs import Ending, Outcome, Run

LOG = logging.getLogger("noidle.pool")


class Farewell:
    """One call a run, repeated while Redis is away."""

    def __init__(self, board: Board, place: Callable[[], Place]) -> None:
        self._board = board
        self._place = place

    def outcome(self, run: Run, departure: Departure) -> Outcome:
        """
        Raises:
            ClusterUnavailable: the board was not told; call again.
        """
        try:
            return self._tell(run, departure)
        except ClusterUnavailable:
            raise
        except Exception:
            LOG.exception("job %s cannot be ended; its lease runs out", run.job_id)
            return Outcome(ending=Ending.LOST)

    def _tell(self, run: Run, departure: Departure) -> Outcome:
        claim, place = run.claim, self._place()
        if run.cancelled:
            return self._finish(run, ending.cancelled(claim, place))
        match departure:
            case Done():
                return self._finish(run, ending.done(claim, place, departure.result))
            case Failed():
                return self._finish(run, ending.failed(claim, place, departure.error))
            case Yield():
                return self._yield(run, departure)
            case _ if run.overdue:
                text = "".join(run.texts)
                return self._finish(run, ending.overdue(claim, place, text, run.tokens))
            case Back():
                known = self._board.hand_back(run.job_id, run.token, crashed=departure.crashed)
                return Outcome(ending=Ending.HANDED_BACK if known else Ending.LOST)

    def _finish(self, run: Run, result: JobResult) -> Outcome:
        if self._board.finish(run.job_id, run.token, result):
            return Outcome(ending=Ending.ENDED, result=result)
        return Outcome(ending=Ending.LOST)

    def _yield(self, run: Run, slice_end: Yield) -> Outcome:
        found = slice_end.checkpoint
        known = self._board.yield_slice(
            run.job_id,
            run.token,
            Checkpoint(name=found.name, storage=found.storage, step=found.step),
            slice_end.model,
            slice_end.service_s,
        )
        return Outcome(ending=Ending.YIELDED if known else Ending.LOST)
