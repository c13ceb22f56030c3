"""From an op to a run that can join a batch: the job checked, its model found or loaded, its
text tokenised.

Owns the choice between doing that at once and leaving it to the porter; knows nothing of
batches."""

from collections.abc import Callable
from concurrent.futures import Future

from engines.protocol import RunStep, Start
from engines.tensor.library import Library, Resident
from engines.tensor.porter import Porter, Progress
from engines.tensor.text_run import Answer, Scoring, TextRun
from noidle.errors import InvalidJob
from noidle.jobs import Generate, Score

QUICK_BYTES = 16_384
"""Texts up to this size are tokenised between two steps; longer ones beside them."""
LONGEST_TOKEN_BYTES = 512
"""No text of more than this many bytes a token of context can fit, whatever its tokens."""


class Boarding:
    """A run on its way into a batch."""

    def __init__(self, start: Start, future: Future[TextRun]) -> None:
        self.id = start.run
        self.future = future
        self.dropped = False

    def tell(self) -> RunStep:
        return RunStep(run=self.id)


class Gate:
    """Lets runs in, each holding its model."""

    def __init__(self, library: Library, porter: Porter, clock: Callable[[], float]) -> None:
        self._library = library
        self._porter = porter
        self._clock = clock

    def begin(self, start: Start, job: Generate | Score) -> TextRun | Boarding:
        """The run at once, where its model is in memory and its text short.

        Raises:
            InvalidJob: the model is unknown, or the text does not fit its context.
            CheckpointError: the model's files cannot be used.
        """
        revision = self._library.revision_for(job.model, start.revision)
        if len(_text(job)) <= QUICK_BYTES and not self._library.short:
            resident = self._library.take(job.model, revision)
            if resident is not None:
                return self._enter(start, job, resident, None)
        began_s = self._clock()

        def load(progress: Progress) -> TextRun:
            resident = self._library.load(job.model, revision, progress)
            return self._enter(start, job, resident, (self._clock() - began_s) * 1000)

        return Boarding(start, self._porter.submit(load))

    def preload(self, model: str) -> Future[None]:
        """
        Raises:
            InvalidJob: the model is unknown.
        """
        revision = self._library.newest(model)

        def load(progress: Progress) -> None:
            self._library.give(self._library.load(model, revision, progress))

        return self._porter.submit(load)

    def _enter(
        self, start: Start, job: Generate | Score, resident: Resident, load_ms: float | None
    ) -> TextRun:
        try:
            text = _text(job)
            _check_size(job, text, resident)
            tokens = resident.tokenizer.encode(text)
            if isinstance(job, Generate):
                return Answer(start, job, resident, tokens, self._clock, load_ms)
            return Scoring(start, job, resident, tokens, self._clock, load_ms)
        except BaseException:
            self._library.give(resident)
            raise


def _text(job: Generate | Score) -> str:
    text = job.prompt if isinstance(job, Generate) else job.text
    if text is None:
        allowed = "a prompt: this model has no chat template"
        raise InvalidJob.of("messages", "messages", allowed)
    return text


def _check_size(job: Generate | Score, text: str, resident: Resident) -> None:
    size, context = len(text.encode()), resident.runner.capacity
    if size > context * LONGEST_TOKEN_BYTES:
        field = "prompt" if isinstance(job, Generate) else "text"
        raise InvalidJob.of(field, f"{size} bytes", f"at most {context} tokens")
