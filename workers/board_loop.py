"""The one thread of a pool that tells the board what its engine did.

Owns the order: everything the engine said since the last turn is merged, reported in one step,
and then each run that is over is ended on the board. While Redis is away it keeps merging and
tries again; what it keeps is bounded by the slots. Knows nothing of Celery or of snapshots."""

import logging
import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from engines.exit import Exit
from engines.process import EngineGone
from engines.protocol import (
    AnyEvent,
    AnyOp,
    Done,
    Drop,
    Dropped,
    Failed,
    ModelSeen,
    RunStep,
    Step,
    Yield,
)
from noidle.errors import ClusterUnavailable
from noidle.snapshot import ModelInfo
from routing.board import Board, StepReport, Verdict
from workers.departure import Back, Departure, Leave
from workers.ending import Place
from workers.engine_view import EngineView
from workers.farewell import Farewell
from workers.reports import Reports
from workers.runs import Ending, Outcome, Run, Runs

LOG = logging.getLogger("noidle.pool")
IDLE_S = 1.0
RETRY_S = 0.1
PACE_S = 0.04


class Engine(Protocol):
    """What the loop asks of the engine process."""

    def send(self, op: AnyOp, generation: int | None = None) -> None: ...

    def kill(self, reason: str) -> None: ...


class BoardLoop:
    """`hear`, `died` and `leave` may be called from any thread and return at once."""

    def __init__(
        self,
        board: Board,
        engine: Engine,
        runs: Runs,
        view: EngineView,
        *,
        place: Callable[[], Place],
        lease_s: float,
        changed: Callable[[], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._board = board
        self._engine = engine
        self._runs = runs
        self._view = view
        self._place = place
        self._lease_s = lease_s
        self._changed = changed
        self._clock = clock
        self._inbox: queue.SimpleQueue[AnyEvent | Exit | Leave | None] = queue.SimpleQueue()
        self._reports = Reports()
        self._farewell = Farewell(board, place)
        self._departures: dict[str, Departure] = {}
        self._models: dict[str, ModelInfo] = {}
        self._away = False
        # a report is to go out at once, or at this time
        self._urgent = False
        self._due_s = 0.0
        self._thread = threading.Thread(target=self._run, name="board-loop", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Returns after one last turn."""
        self._inbox.put(None)
        self._thread.join()

    def hear(self, event: AnyEvent) -> None:
        self._inbox.put(event)

    def died(self, end: Exit) -> None:
        self._inbox.put(end)

    def leave(self, wait_s: float) -> None:
        self._inbox.put(Leave(wait_s=wait_s))

    def _run(self) -> None:
        going = True
        while going:
            items = self._gather()
            going = None not in items
            try:
                self.turn([item for item in items if item is not None])
            except Exception:
                # the thread that everything waits for: it says what went wrong and goes on
                LOG.exception("a turn of the board loop failed", extra={"event": "turn_failed"})

    def _gather(self) -> list[AnyEvent | Exit | Leave | None]:
        try:
            items = [self._inbox.get(timeout=self._patience_s())]
            while not self._inbox.empty():
                items.append(self._inbox.get_nowait())
        except queue.Empty:
            return []
        return items

    def _patience_s(self) -> float:
        if self._away or any(run.leave_at_s is not None for run in self._runs.all()):
            return RETRY_S
        return PACE_S if self._reports else IDLE_S

    def turn(self, items: list[AnyEvent | Exit | Leave]) -> None:
        # 1. merge what was said
        for item in items:
            self._absorb(item)
        # 2. find what was not
        self._watch()
        # 3. tell the board
        try:
            if self._is_due():
                self._report()
            self._end()
            self._register()
        except ClusterUnavailable as error:
            if not self._away:
                LOG.warning("%s; runs go on", error, extra={"event": "redis_away"})
            self._away = True
        else:
            self._away = False

    def _is_due(self) -> bool:
        """A first token and an end are told at once, all else some 25 times a second: a person
        sees no difference, and a fast engine keeps its core."""
        return self._urgent or bool(self._departures) or self._clock() >= self._due_s

    def _absorb(self, item: AnyEvent | Exit | Leave) -> None:
        match item:
            case Step():
                for step in item.runs:
                    self._moved(step)
                self._renew_waiting()
            case Done() | Failed() | Yield():
                self._depart(item.run, item)
            case Dropped():
                self._depart(item.run, Back())
            case Exit():
                self._engine_died(item)
            case Leave():
                self._let_go(item.wait_s)
            case ModelSeen():
                self._models[item.model.name] = item.model
        if not isinstance(item, Exit | Leave) and self._view.hear(item):
            self._changed()

    def _moved(self, step: RunStep) -> None:
        run = self._runs.get(step.run)
        if run is None:
            return
        run.moved_s = self._clock()
        run.begun = True
        run.keep(step.text, step.tokens)
        if (step.text or step.tokens) and not run.emitted:
            run.emitted = self._urgent = True
        self._reports.add(run, step)

    def _renew_waiting(self) -> None:
        """While the engine moves, who waits for its turn in it is not taken for hung."""
        now_s = self._clock()
        for run in self._runs.all():
            if not run.begun and now_s - run.moved_s > self._lease_s / 4:
                run.moved_s = now_s
                self._reports.add(run, RunStep(run=run.token))

    def _depart(self, token: str, departure: Departure) -> None:
        """The first word of an end counts."""
        if self._runs.get(token) is not None:
            self._departures.setdefault(token, departure)

    def _engine_died(self, end: Exit) -> None:
        self._view.down(end.reason, end.failures)
        self._changed()
        for run in self._runs.all():
            if run.generation == end.generation:
                self._depart(run.token, Back(crashed=not end.expected))

    def _let_go(self, wait_s: float) -> None:
        for run in self._runs.all():
            run.leave_at_s = self._clock() + wait_s
            self._drop(run)

    def _watch(self) -> None:
        now_s = self._clock()
        for run in self._runs.all():
            if run.token in self._departures:
                continue
            if run.leave_at_s is not None and now_s >= run.leave_at_s:
                self._depart(run.token, Back())
            elif now_s - run.moved_s > self._lease_s:
                self._engine.kill(f"job {run.job_id} did not move for {self._lease_s:g} s")
                return

    def _register(self) -> None:
        for name, model in list(self._models.items()):
            self._board.register(model)
            del self._models[name]

    def _report(self) -> None:
        # the board takes the last text from a result too, so a run that is done needs no report
        for token, departure in self._departures.items():
            if isinstance(departure, Done) and departure.result.text is not None:
                self._reports.drop(token)
        self._urgent = False
        self._due_s = self._clock() + PACE_S
        if not self._reports:
            return
        reports = self._reports.all()
        verdicts = self._verdicts(list(reports.values()))
        for token, report in reports.items():
            run = self._runs.get(token)
            if run is not None:
                self._obey(run, verdicts.get(report.job, Verdict.LOST))
        self._reports.clear()

    def _verdicts(self, reports: list[StepReport]) -> dict[str, Verdict]:
        """What cannot be told for another reason than Redis being away ends its own run only."""
        pool = self._place().pool
        try:
            return self._board.report(pool, reports)
        except ClusterUnavailable:
            raise
        except Exception:
            if len(reports) > 1:
                LOG.exception("a report failed; each run is told on its own")
                return {job: said for one in reports for job, said in self._verdicts([one]).items()}
            LOG.exception("job %s cannot be told; it is left", reports[0].job)
            return {reports[0].job: Verdict.LOST}

    def _obey(self, run: Run, verdict: Verdict) -> None:
        if verdict is Verdict.LOST:
            self._drop(run)
            self._departures.pop(run.token, None)
            self._runs.end(run, Outcome(ending=Ending.LOST))
        elif verdict is Verdict.CANCELLED and not run.cancelled:
            run.cancelled = True
            self._drop(run)
        elif verdict is Verdict.OVERDUE and not run.overdue:
            run.overdue = True
            self._drop(run)
        elif verdict in (Verdict.PAUSE, Verdict.FREE):
            self._make_room(run, free=verdict is Verdict.FREE)

    def _make_room(self, run: Run, *, free: bool) -> None:
        """Told once, and once more where memory turns out to be needed too."""
        if run.paused and (run.freed or not free):
            return
        run.paused, run.freed = True, free
        self._send(run, self._view.pause(run.token, free=free))

    def _drop(self, run: Run) -> None:
        self._send(run, Drop(run=run.token))

    def _send(self, run: Run, op: AnyOp) -> None:
        # where the engine is gone, the run's end is on the way
        with suppress(EngineGone):
            self._engine.send(op, run.generation)

    def _end(self) -> None:
        for token, departure in list(self._departures.items()):
            run = self._runs.get(token)
            if run is not None:
                self._runs.end(run, self._farewell.outcome(run, departure))
            del self._departures[token]
