"""Everything that reads and writes text: runs on their way in, and a batch for each model.

Owns which run is where, and that each gives its model back. Knows nothing of training or of
the pipes."""

from collections.abc import Callable
from concurrent.futures import Future

from engines.protocol import Dropped, Log, Start
from engines.tensor.batch import Batch
from engines.tensor.boarding import Boarding, Gate
from engines.tensor.library import Library, Resident
from engines.tensor.measuring import Measuring
from engines.tensor.outbox import Outbox, Run
from engines.tensor.pace import Pace
from engines.tensor.porter import Porter
from engines.tensor.rates import RateBook
from engines.tensor.text_run import TextRun
from noidle.jobs import Generate, Score


class Desk:
    """Advance it pass by pass."""

    def __init__(
        self,
        library: Library,
        *,
        outbox: Outbox,
        rates: RateBook,
        pace: Pace,
        measuring: Measuring,
        settle: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        """`settle` is called before a model's first step."""
        self._library, self._outbox = library, outbox
        self._rates, self._pace, self._settle = rates, pace, settle
        self._measuring, self._clock = measuring, clock
        self._porter = Porter("loads", clock)
        self._gate = Gate(library, self._porter, clock)
        self._runs: dict[str, TextRun] = {}
        self._boarding: dict[str, Boarding] = {}
        self._batches: dict[Resident, Batch] = {}
        self._preloads: list[Future[None]] = []

    @property
    def busy(self) -> bool:
        return bool(self._runs or self._boarding or self._preloads)

    @property
    def unread_rank(self) -> int | None:
        """That of the most urgent prompt that is unread, among those whose model is here."""
        ranks = [batch.unread_rank for batch in self._batches.values()]
        return min((rank for rank in ranks if rank is not None), default=None)

    def disturb(self) -> None:
        """Something else computed since the last pass."""
        for batch in self._batches.values():
            batch.disturb()

    def begin(self, start: Start, job: Generate | Score) -> None:
        """
        Raises:
            InvalidJob: the model is unknown, or the text does not fit its context.
        """
        entered = self._gate.begin(start, job)
        if isinstance(entered, Boarding):
            self._boarding[start.run] = entered
        else:
            self._join(entered)

    def preload(self, model: str) -> None:
        """
        Raises:
            InvalidJob: the model is unknown.
        """
        self._preloads.append(self._gate.preload(model))

    def drop(self, run: str) -> None:
        if run in self._runs:
            found = self._runs[run]
            self._batches[found.resident].drop(found)
        elif run in self._boarding and not self._boarding[run].dropped:
            # what the porter does for it goes on; its model is given back then
            self._boarding[run].dropped = True
            self._outbox.end(self._boarding[run], Dropped(run=run))

    def advance(self) -> int | None:
        """A step of each model that has something to do: how many runs decoded, or None where
        none had."""
        self._board()
        at_work = [batch for batch in self._batches.values() if not batch.idle]
        if not at_work:
            return None
        self._pace.decoding = any(batch.decodes for batch in at_work)
        self._pace.models = len(at_work)
        return sum(batch.step(alone=len(at_work) == 1) for batch in at_work)

    def measure(self) -> bool:
        """Where nobody has work: a step of measuring a model that is new in memory."""
        if self._batches or self._boarding or self._preloads or self._library.short:
            self._measuring.stop()
            return False
        return self._measuring.advance()

    def forget_ended(self) -> None:
        """Gives back what runs that ended in this pass held."""
        for ended in self._outbox.ended:
            run = self._runs.pop(ended, None)
            if run is not None:
                self._library.give(run.resident)
        for resident in [one for one, batch in self._batches.items() if batch.idle]:
            del self._batches[resident]
            self._library.give(resident)

    def waiting(self) -> list[Run]:
        """Runs that did not move by themselves but are in good hands."""
        runs: list[Run] = [run for batch in self._batches.values() for run in batch.runs]
        if self._porter.moving:
            runs += [one for one in self._boarding.values() if not one.dropped]
        return runs

    def everyone(self) -> list[Run]:
        """All runs but those that wait for the porter."""
        return list(self._runs.values())

    def _board(self) -> None:
        for boarding in [one for one in self._boarding.values() if one.future.done()]:
            del self._boarding[boarding.id]
            error = boarding.future.exception()
            if boarding.dropped:
                if error is None:
                    self._library.give(boarding.future.result().resident)
            elif error is not None:
                self._outbox.fail(boarding, error)
            else:
                self._join(boarding.future.result())

        for preload in [one for one in self._preloads if one.done()]:
            self._preloads.remove(preload)
            error = preload.exception()
            if error is not None:
                self._outbox.say(Log(level="warning", message=f"cannot preload: {error}"))

    def _join(self, run: TextRun) -> None:
        self._measuring.stop()
        self._runs[run.id] = run
        if run.resident not in self._batches:
            # for itself: a step may still be under way when its last run has ended
            self._library.hold(run.resident)
            self._settle()
            self._batches[run.resident] = Batch(
                run.resident, self._outbox, self._rates, self._clock
            )
        self._batches[run.resident].join(run)
