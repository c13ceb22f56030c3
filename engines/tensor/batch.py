"""All runs of one model in memory, on their way through its serving core.

Owns which sequence belongs to which run, and what becomes of a run when its sequence ends. Knows
nothing of loading, of time slices or of the pipes."""

from engines.protocol import Done, Dropped
from engines.tensor.library import Resident
from engines.tensor.outbox import Outbox
from engines.tensor.rates import RateBook
from engines.tensor.text_run import TextRun
from tensor_llm.serving.core import Output
from tensor_llm.serving.sequence import Sequence


class Batch:
    """What runs emit and how they end goes to the outbox."""

    def __init__(self, resident: Resident, outbox: Outbox, rates: RateBook) -> None:
        self.resident = resident
        self._core = resident.core
        self._outbox = outbox
        self._rates = rates
        self._runs: dict[Sequence, TextRun] = {}
        self._steps = self._core.stats().steps
        # a step under way waited for something else that computed
        self._disturbed = False

    @property
    def runs(self) -> list[TextRun]:
        """They move as long as the batch does."""
        return list(self._runs.values())

    @property
    def decodes(self) -> bool:
        """Whether somebody waits for the next token."""
        return any(sequence.decoding for sequence in self._core.running)

    @property
    def unread_rank(self) -> int | None:
        """That of the most urgent run whose first token is still to come."""
        unread = [one for one in (*self._core.running, *self._core.waiting) if _unread(one)]
        return min((one.rank for one in unread), default=None)

    @property
    def idle(self) -> bool:
        return not self._runs and not self._core.busy

    def join(self, run: TextRun) -> None:
        try:
            # a former attempt may have died between its last token and its end
            if not self._ended(run):
                self._ask(run)
        except Exception as error:  # noqa: BLE001  ends this run alone
            self._outbox.fail(run, error)

    def drop(self, run: TextRun) -> None:
        self._leave(run)
        self._outbox.end(run, Dropped(run=run.id))

    def disturb(self) -> None:
        """Something else computed: what was under way beside it tells nothing of its speed."""
        executor = self._core.executor
        self._disturbed = executor.asynchronous or executor.flights > 1

    def step(self) -> int:
        """One step of the core; how many runs decoded in what landed."""
        for output in self._core.step():
            run = self._runs.get(output.sequence)
            if run is not None:
                self._hear(run, output)
        stats = self._core.stats()
        if stats.steps == self._steps:
            return 0
        self._steps = stats.steps
        rows, spent_s = stats.decode_rows, stats.step_s
        if rows and self._core.executor.flights > 1:
            # each of several steps under way serves a part of the runs, one after the other
            every = max(rows, sum(one.decoding for one in self._core.running))
            rows, spent_s = every, spent_s * every / rows
        if not self._disturbed:
            self._rates.of(self.resident.name).step(rows, stats.chunk_tokens, spent_s)
        self._disturbed = False
        return rows

    def _hear(self, run: TextRun, output: Output) -> None:
        if output.error is not None:
            self._leave(run)
            self._outbox.fail(run, output.error)
            return
        self._outbox.moved(run)
        try:
            run.hear(output)
            if not self._ended(run) and output.finished:
                self._leave(run)
                self._ask(run)
        except Exception as error:  # noqa: BLE001  ends this run alone
            self._leave(run)
            self._outbox.fail(run, error)

    def _ask(self, run: TextRun) -> None:
        request = run.request
        assert request is not None
        sequence = self._core.add(request)
        self._runs[sequence] = run
        run.asked(sequence)

    def _ended(self, run: TextRun) -> bool:
        result = run.result()
        if result is None:
            return False
        self._leave(run)
        self._outbox.end(run, Done(run=run.id, result=result))
        return True

    def _leave(self, run: TextRun) -> None:
        for sequence in [one for one, known in self._runs.items() if known is run]:
            del self._runs[sequence]
            self._core.drop(sequence)


def _unread(one: Sequence) -> bool:
    """What was evicted reads again; what has just been read is on its way until a token shows."""
    return not one.decoding or one.first_token_s is None
