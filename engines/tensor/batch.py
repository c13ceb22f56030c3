"""All runs of one model in memory, on their way through its serving core.

Owns which sequence belongs to which run, and what becomes of a run when its sequence ends. Knows
nothing of loading, of time slices or of the pipes."""

from collections.abc import Callable

from engines.protocol import Done, Dropped
from engines.tensor.library import Resident
from engines.tensor.outbox import Outbox
from engines.tensor.rates import RateBook
from engines.tensor.steps import last_step
from engines.tensor.text_run import TextRun
from tensor_llm.serving.core import Output
from tensor_llm.serving.sequence import Sequence


class Batch:
    """What runs emit and how they end goes to the outbox."""

    def __init__(
        self,
        resident: Resident,
        outbox: Outbox,
        rates: RateBook,
        clock: Callable[[], float],
    ) -> None:
        self.resident = resident
        self._core = resident.core
        self._outbox = outbox
        self._rates, self._clock = rates, clock
        self._runs: dict[Sequence, TextRun] = {}
        self._steps = self._core.stats().steps
        # a step under way waited for something else that computed
        self._disturbed = False
        # when the last step had landed, where nothing but its telling followed it
        self._since_s: float | None = None

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
        self._since_s = None

    def step(self, *, alone: bool = True) -> int:
        """One step of the core; how many runs decoded in what landed. No other model takes steps
        in this pass if it is `alone`."""
        for output in self._core.step():
            run = self._runs.get(output.sequence)
            if run is not None:
                self._hear(run, output)
        steps = self._core.stats().steps
        if steps == self._steps:
            return 0
        self._steps = steps
        return self._measured(alone=alone)

    def _measured(self, *, alone: bool) -> int:
        """To those who wait for tokens a step lasts until the next one, with all that its telling
        takes."""
        now_s, since_s = self._clock(), self._since_s
        step = last_step(self._core, now_s - since_s if alone and since_s is not None else None)
        if not self._disturbed:
            self._rates.of(self.resident.name).step(*step)
        self._disturbed, self._since_s = False, now_s
        return step.decoded

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
