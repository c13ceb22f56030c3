"""All runs of one model in memory: who waits for a row, whose text is being read, who decodes.

Owns continuous batching: runs join and leave between steps, and the fault of one never harms
another. Knows nothing of loading, of time slices or of the pipes."""

from collections import deque
from collections.abc import Callable

from engines.protocol import Done, Dropped
from engines.tensor.group import Group
from engines.tensor.library import Resident
from engines.tensor.outbox import Outbox
from engines.tensor.rates import RateBook
from engines.tensor.text_run import Answer, TextRun


class Batch:
    """What runs emit and how they end goes to the outbox."""

    def __init__(
        self,
        resident: Resident,
        outbox: Outbox,
        rates: RateBook,
        *,
        wait_device: Callable[[], None],
        clock: Callable[[], float],
    ) -> None:
        self.resident = resident
        self._runner = resident.runner
        self._outbox = outbox
        self._rates = rates
        self._wait_device = wait_device
        self._clock = clock
        self._waiting: deque[TextRun] = deque()
        self._reading: deque[TextRun] = deque()
        self._groups = [Group(self._runner) for _ in range(self._runner.flights)]

    @property
    def waiting(self) -> list[TextRun]:
        """Runs whose turn it is not; they move as long as the batch does."""
        return [*self._waiting, *self._reading]

    @property
    def decoding(self) -> int:
        return sum(len(group.runs) for group in self._groups)

    @property
    def idle(self) -> bool:
        return not (self._waiting or self._reading or self.decoding)

    @property
    def kv_tokens(self) -> int:
        """Tokens that the runs with a row may come to hold."""
        decoding = [run for group in self._groups for run in group.runs]
        return sum(run.kv_tokens for run in [*self._reading, *decoding])

    def join(self, run: TextRun) -> None:
        # a former attempt may have died between its last token and its end
        if not self._ended(run):
            self._waiting.append(run)

    def drop(self, run: TextRun) -> None:
        """Takes a run out, at once or when the step under way has ended."""
        if isinstance(run, Answer) and any(group.carries(run) for group in self._groups):
            run.gone = True
            return
        self._leave(run)
        self._outbox.end(run, Dropped(run=run.id))

    def read(self, budget: int) -> int:
        """Reads up to `budget` tokens, by turns; how many it read."""
        self._seat()
        spent = 0
        while self._reading and spent < budget:
            run = self._reading.popleft()
            size = min(budget - spent, len(run.inputs) - run.read)
            spent += size
            try:
                self._read_part(run, size)
            except Exception as error:  # noqa: BLE001  ends this run alone
                self._leave(run)
                self._outbox.fail(run, error)
        return spent

    def decode(self) -> int:
        """One token for every run that is read; how many there were."""
        began_s, count = self._clock(), self.decoding
        for group in self._groups:
            if not group.flying:
                group.launch()
        for group in self._groups:
            for run, token in group.land():
                self._push(run, token)
            # with several groups, the steps of the others go on meanwhile
            if len(self._groups) > 1:
                group.launch()
        if count:
            self._rates.decode.add(count, self._clock() - began_s)
        return count

    def _seat(self) -> None:
        while self._waiting and (row := self._runner.claim()) is not None:
            run = self._waiting.popleft()
            run.row = row
            run.seated()
            self._reading.append(run)

    def _read_part(self, run: TextRun, size: int) -> None:
        began_s = self._clock()
        assert run.row is not None
        part = run.inputs[run.read : run.read + size]
        logits_TV = self._runner.read(part, run.row, every=run.every)
        self._wait_device()
        run.read += size
        run.hear(logits_TV)
        self._rates.prefill.add(size, self._clock() - began_s)
        self._outbox.moved(run)
        if self._ended(run):
            return
        if run.read < len(run.inputs):
            self._reading.append(run)
        elif isinstance(run, Answer):
            min(self._groups, key=lambda group: len(group.runs)).add(run)

    def _push(self, run: Answer, token: int | Exception) -> None:
        if run.gone:
            self._leave(run)
            self._outbox.end(run, Dropped(run=run.id))
        elif isinstance(token, Exception):
            self._leave(run)
            self._outbox.fail(run, token)
        else:
            run.push(token)
            self._outbox.moved(run)
            self._ended(run)

    def _ended(self, run: TextRun) -> bool:
        result = run.result()
        if result is None:
            return False
        self._leave(run)
        self._outbox.end(run, Done(run=run.id, result=result))
        return True

    def _leave(self, run: TextRun) -> None:
        for queue in (self._waiting, self._reading):
            if run in queue:
                queue.remove(run)
        for group in self._groups:
            if isinstance(run, Answer) and run in group.runs:
                group.runs.remove(run)
        if run.row is not None:
            self._runner.release(run.row)
            run.row = None
