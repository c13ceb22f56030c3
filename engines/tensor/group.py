"""Runs that decode in one step of a model.

Owns a step from its beginning to its tokens, and the search for the culprit when it fails.
Knows nothing of how runs join or what their tokens mean.

Letters: B rows, V vocabulary."""

from collections.abc import Iterator
from dataclasses import dataclass

from torch import Tensor

from engines.tensor.fault import is_fatal
from engines.tensor.runner import Flight, Runner
from engines.tensor.text_run import Answer
from tensor_llm.sampling import SamplingBatch, sample


@dataclass(frozen=True, slots=True)
class Failure:
    """A step that failed when it began."""

    error: Exception

    def land(self) -> Tensor:
        raise self.error


class Group:
    """Launch a step, land it; runs may be added between, and removed if they are not flying."""

    def __init__(self, runner: Runner) -> None:
        self._runner = runner
        self.runs: list[Answer] = []
        self._flying: list[Answer] = []
        # how long their rows were before the step
        self._lengths: list[int] = []
        self._flight: Flight | None = None
        self._sampling: SamplingBatch | None = None
        self._sampled: list[Answer] = []

    @property
    def flying(self) -> bool:
        return self._flight is not None

    def carries(self, run: Answer) -> bool:
        return self.flying and run in self._flying

    def add(self, run: Answer) -> None:
        self.runs.append(run)
        # rows in order lie together and are read without a copy
        self.runs.sort(key=_row)

    def launch(self) -> None:
        if not self.runs:
            return
        self._flying = list(self.runs)
        rows = [_row(run) for run in self._flying]
        self._lengths = [self._runner.length(row) for row in rows]
        try:
            tokens = [run.last_token for run in self._flying]
            self._flight = self._runner.decode(tokens, rows)
        except Exception as error:  # noqa: BLE001  told to the runs when the step lands
            self._flight = Failure(error)

    def land(self) -> list[tuple[Answer, int | Exception]]:
        """Waits; the next token of each run, or why that run cannot go on."""
        flight, runs = self._flight, self._flying
        if flight is None:
            return []
        self._flight, self._flying = None, []
        try:
            tokens: list[int | Exception] = list(self._choose(flight.land(), runs))
        except Exception as error:
            if is_fatal(error):
                raise
            tokens = list(self._one_by_one(runs))
        return list(zip(runs, tokens, strict=True))

    def _choose(self, logits_BV: Tensor, runs: list[Answer]) -> list[int]:
        if self._sampling is None or self._sampled != runs:
            self._sampling = SamplingBatch.of([run.sampling for run in runs], logits_BV.device)
            self._sampled = runs
        token_B = sample(logits_BV, self._sampling, [run.position for run in runs])
        tokens: list[int] = token_B.tolist()
        return tokens

    def _one_by_one(self, runs: list[Answer]) -> Iterator[int | Exception]:
        """The step failed for all: finds out whose fault it was."""
        for run, length in zip(runs, self._lengths, strict=True):
            row = _row(run)
            try:
                self._runner.truncate(row, min(length, self._runner.length(row)))
                logits_BV = self._runner.decode([run.last_token], [row]).land()
                batch = SamplingBatch.of([run.sampling], logits_BV.device)
                yield int(sample(logits_BV, batch, [run.position]))
            except Exception as error:  # noqa: BLE001  ends this run alone
                yield error


def _row(run: Answer) -> int:
    assert run.row is not None
    return run.row
