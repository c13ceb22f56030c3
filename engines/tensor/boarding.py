"""From an op to a run that can join a batch: the job checked, its model found or loaded, its
text or conversation tokenised.

Owns the choice between doing that at once and leaving it to the porter; knows nothing of
batches."""

from collections.abc import Callable
from concurrent.futures import Future

from engines.protocol import RunStep, Start
from engines.tensor.library import Library, Resident
from engines.tensor.porter import Porter, Progress
from engines.tensor.text_run import Answer, Entry, Scoring, TextRun
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
        if _size(job) <= QUICK_BYTES and not self._library.short:
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
            _check_size(job, resident)
            began_s = self._clock()
            tokens = _tokens(job, resident)
            tokenize_ms = (self._clock() - began_s) * 1000
            entry = Entry(tokens=tokens, load_ms=load_ms, tokenize_ms=tokenize_ms)
            if isinstance(job, Generate):
                return Answer(start, job, resident, entry, self._clock)
            return Scoring(start, job, resident, entry, self._clock)
        except BaseException:
            self._library.give(resident)
            raise


def _field(job: Generate | Score) -> str:
    """Where the job's text is."""
    if isinstance(job, Score):
        return "text"
    return "prompt" if job.messages is None else "messages"


def _texts(job: Generate | Score) -> list[str]:
    if isinstance(job, Score):
        return [job.text]
    if job.messages is None:
        return [job.prompt or ""]
    return [message.content for message in job.messages]


def _size(job: Generate | Score) -> int:
    return sum(len(text.encode()) for text in _texts(job))


def _check_size(job: Generate | Score, resident: Resident) -> None:
    size, context = _size(job), resident.capacity
    if size > context * LONGEST_TOKEN_BYTES:
        raise InvalidJob.of(_field(job), f"{size} bytes", f"at most {context} tokens")


def _tokens(job: Generate | Score, resident: Resident) -> tuple[int, ...]:
    if isinstance(job, Generate) and job.messages is not None:
        if resident.chat is None:
            allowed = (
                f"a model with a chat template, which {resident.name} came without; send its "
                "text as prompt instead, or add the model again with its chat_template.jinja"
            )
            raise InvalidJob.of("messages", f"{len(job.messages)} messages", allowed)
        return tuple(resident.chat.encode(job.messages, resident.tokenizer))
    (text,) = _texts(job)
    tokens = tuple(resident.tokenizer.encode(text))
    if not tokens:
        raise InvalidJob.of(_field(job), text, "text that has at least one token")
    return tokens
