"""What a producer can ask for. Owns the job models and their validation; knows nothing of
Redis, pools or tensors."""

import uuid
from enum import StrEnum
from typing import Annotated, Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    ModelWrapValidatorHandler,
    Strict,
    ValidationError,
    model_validator,
)

from noidle.errors import InvalidJob
from noidle.fault import first_fault, misfit

MAX_TEXT_BYTES = 1 << 20
"""Longest prompt, messages together, scored text or inline training text, in UTF-8 bytes."""
MAX_MESSAGES = 1000
MAX_HEAD_SIZE = 1024
"""Channels of one attention head."""


class JobClass(StrEnum):
    """How urgent a job is; earlier members go first."""

    INTERACTIVE = "interactive"  # a person waits for the first token
    STANDARD = "standard"  # a program waits for the result
    BATCH = "batch"  # somebody reads it later
    BACKGROUND = "background"  # whenever there is room


class Role(StrEnum):
    """Who says a message."""

    SYSTEM = "system"  # whoever sets the model up
    USER = "user"  # whoever asks
    ASSISTANT = "assistant"  # the model, in an earlier turn
    TOOL = "tool"  # a program that the model called, with its answer


class EngineName(StrEnum):
    """The execution paths; also the names of their Celery queues."""

    CPU = "cpu"  # the model on host cores
    HYBRID = "hybrid"  # one model split over CPU and accelerator
    CUDA = "cuda"  # NVIDIA fast path for answers
    GPU = "gpu"  # any accelerator torch knows; long sequences, training


# Strict, so that True is no number, "12" no integer and bytes no text: what a producer in
# another language sends means the same here.
Whole = Annotated[int, Strict()]
Number = Annotated[float, Strict(), Field(allow_inf_nan=False)]
String = Annotated[str, Strict()]
Text = Annotated[String, Field(min_length=1)]
Name = Annotated[
    String,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$",
        description="1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit",
    ),
]
JobId = Annotated[
    String,
    Field(
        pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$",
        description="1 to 128 letters, digits, '.', '_', ':' or '-', the first a letter or digit",
    ),
]


def _check_size(field: str, text: str | None) -> None:
    size = len(text.encode()) if text is not None else 0
    if size > MAX_TEXT_BYTES:
        raise InvalidJob.of(
            field, text, f"at most {MAX_TEXT_BYTES} bytes of UTF-8, this has {size}"
        )


class _Job(BaseModel):
    """What every kind of job shares."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True)

    id: JobId = Field(default_factory=lambda: uuid.uuid4().hex)
    model: Name
    job_class: JobClass = Field(default=JobClass.STANDARD, alias="class")
    # a wish: only pools of this engine may run the job
    engine: EngineName | None = None
    # who sends it, for people and for fairness between producers
    label: Name | None = None
    # seconds after acceptance in which the job must have started; else it ends expired
    expires_s: Number | None = Field(default=None, gt=0, le=30 * 86_400)
    # seconds after acceptance in which the job must have ended; one that no pool could end by
    # then is refused at once, and one that runs ends at its next step, failed, with what it has
    deadline_s: Number | None = Field(default=None, gt=0, le=30 * 86_400)
    # seconds the result stays readable after the end
    keep_s: Whole = Field(default=86_400, ge=1, le=7 * 86_400)
    # absent: one is drawn at acceptance and kept in the record
    seed: Whole | None = Field(default=None, ge=0, lt=2**63)

    @model_validator(mode="wrap")
    @classmethod
    def _refuse_in_words(cls, data: Any, handler: ModelWrapValidatorHandler[Self]) -> Self:
        try:
            job = handler(data)
        except ValidationError as error:
            raise first_fault(error, cls) from None
        job.check_fit()
        return job

    def check_fit(self) -> None:
        """Raises InvalidJob where fields that are right by themselves do not go together."""


class Message(BaseModel):
    """One turn of a conversation. What `content` says is text, never a special token."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    role: Role
    # a question must say something; other turns may be empty. The bound on the length has
    # pydantic look for halves of surrogate pairs
    content: String = Field(min_length=0)

    @model_validator(mode="after")
    def _asks_something(self) -> Self:
        if self.role is Role.USER and not self.content:
            raise misfit("content", self.content, "text of at least 1 character, as the user's")
        return self


class Generate(_Job):
    """Continue `prompt`, or answer `messages`, by up to `max_tokens` tokens."""

    kind: Literal["generate"] = "generate"
    # exactly one of the two
    prompt: Text | None = None
    # a conversation, written as the model's own chat template says
    messages: tuple[Message, ...] | None = Field(
        default=None, min_length=1, max_length=MAX_MESSAGES
    )
    max_tokens: Whole = Field(default=128, ge=1, le=1_000_000)
    # a hint for the router: how many tokens the answer will likely have
    expected_tokens: Whole | None = Field(default=None, ge=1, le=1_000_000)
    # 0 takes the likeliest token each time
    temperature: Number = Field(default=0.0, ge=0, le=10)
    top_k: Whole | None = Field(default=None, ge=1, le=10_000_000)
    top_p: Number | None = Field(default=None, gt=0, le=1)
    stop: tuple[Annotated[String, Field(min_length=1, max_length=200)], ...] = Field(
        default=(), max_length=16
    )
    # have the result tell how probable the model found each token of the answer, before
    # temperature, top_k and top_p
    logprobs: Annotated[bool, Strict()] = False

    def check_fit(self) -> None:
        one = "exactly one of prompt and messages"
        if self.prompt is None and self.messages is None:
            raise InvalidJob(f"prompt is missing: allowed is {one}", field="prompt", allowed=one)
        if self.prompt is not None and self.messages is not None:
            shown = f"{len(self.messages)} messages"
            raise InvalidJob.of("messages", shown, f"{one}; prompt is given too")
        _check_size("prompt", self.prompt)
        size = sum(len(message.content.encode()) for message in self.messages or ())
        if size > MAX_TEXT_BYTES:
            limit = f"at most {MAX_TEXT_BYTES} bytes of UTF-8 together, these have {size}"
            raise InvalidJob.of("messages", f"{len(self.messages or ())} messages", limit)


class Score(_Job):
    """Log-probability of each token of `text` given those before it, and the perplexity."""

    kind: Literal["score"] = "score"
    text: Text

    def check_fit(self) -> None:
        _check_size("text", self.text)


class ModelShape(BaseModel):
    """The decoder that training creates; ignored when the model exists already."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: Whole = Field(default=4, ge=1, le=256)
    # width of the residual stream
    hidden: Whole = Field(default=128, ge=8, le=65_536)
    heads: Whole = Field(default=4, ge=1, le=512)
    kv_heads: Whole = Field(default=2, ge=1, le=512)
    # width of the SwiGLU's inner layer; absent: 8/3 of hidden, rounded up to 32
    mlp: Whole | None = Field(default=None, ge=8, le=1_048_576)
    vocabulary: Whole = Field(default=1024, ge=257, le=1_000_000)
    # longest sequence, in tokens
    context: Whole = Field(default=256, ge=8, le=1_000_000)
    tied_head: Annotated[bool, Strict()] = True

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.heads % self.kv_heads:
            raise misfit("heads", self.heads, f"a multiple of kv_heads ({self.kv_heads})")
        # rotary embedding turns pairs of a head's channels
        if self.hidden % (2 * self.heads):
            raise misfit("hidden", self.hidden, f"a multiple of twice the heads ({self.heads})")
        if self.hidden > MAX_HEAD_SIZE * self.heads:
            widest = f"at most {MAX_HEAD_SIZE} times the heads ({self.heads})"
            raise misfit("hidden", self.hidden, widest)
        return self


class Train(_Job):
    """Train `model` on text, in slices that each end in a checkpoint."""

    kind: Literal["train"] = "train"
    job_class: JobClass = Field(default=JobClass.BACKGROUND, alias="class")
    # exactly one of the two
    text: Text | None = None
    # a file or folder under the cluster's data folder
    path: String | None = Field(default=None, min_length=1, max_length=4096)
    shape: ModelShape = ModelShape()
    steps: Whole = Field(default=200, ge=1, le=100_000_000)
    # sequences an optimiser step, split in `accumulate` parts
    batch: Whole = Field(default=8, ge=1, le=65_536)
    accumulate: Whole = Field(default=1, ge=1, le=4096)
    # tokens a training sequence; absent: the model's context
    sequence: Whole | None = Field(default=None, ge=8, le=1_000_000)
    # absent: 1 / hidden, at most 0.01; wider models want less
    learning_rate: Number | None = Field(default=None, gt=0, le=1)
    warmup_steps: Whole = Field(default=20, ge=0, le=100_000_000)
    # strong, because a small text is read many times over
    weight_decay: Number = Field(default=1.0, ge=0, le=1)
    clip_norm: Number = Field(default=1.0, gt=0, le=1_000_000)
    # share of the text kept aside to measure the loss on
    held_out: Number = Field(default=0.1, gt=0, lt=1)
    # seconds a slice: the longest others wait for this slot
    slice_s: Number = Field(default=5.0, ge=0.1, le=3600)

    def check_fit(self) -> None:
        one = "exactly one of text and path"
        if self.text is None and self.path is None:
            raise InvalidJob(f"text is missing: allowed is {one}", field="text", allowed=one)
        if self.text is not None and self.path is not None:
            raise InvalidJob.of("path", self.path, f"{one}; text is given too")
        _check_size("text", self.text)
        if self.path is not None and "\0" in self.path:
            raise InvalidJob.of("path", self.path, "a file name without zero bytes")
        if self.batch % self.accumulate:
            raise InvalidJob.of(
                "batch", self.batch, f"a multiple of accumulate ({self.accumulate})"
            )


Job = Annotated[Generate | Score | Train, Field(discriminator="kind")]
KINDS: dict[str, type[Generate] | type[Score] | type[Train]] = {
    "generate": Generate,
    "score": Score,
    "train": Train,
}


def parse_job(data: object) -> Generate | Score | Train:
    """Validates a job that arrived as JSON data.

    Raises:
        InvalidJob: naming the first wrong field, its value and what is allowed.
    """
    if not isinstance(data, dict):
        raise InvalidJob.of("job", data, "an object such as {'kind': 'generate', …}")
    if "kind" not in data:
        kinds = " or ".join(KINDS)
        raise InvalidJob(f"kind is missing: allowed is {kinds}", field="kind", allowed=kinds)
    kind = data["kind"]
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidJob.of("kind", kind, " or ".join(KINDS))
    return KINDS[kind].model_validate(data)


def to_wire(job: Generate | Score | Train) -> dict[str, Any]:
    """The job as JSON data, the way any Celery producer would write it."""
    return job.model_dump(mode="json", by_alias=True, exclude_none=True)
