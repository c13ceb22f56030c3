"""What a producer can ask for. Owns the job models and their validation; knows nothing of
Redis, pools or tensors."""

import difflib
import uuid
from enum import StrEnum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError, model_validator

from noidle.errors import InvalidJob

MAX_TEXT_BYTES = 1 << 20
"""Longest prompt, scored text or inline training text, in UTF-8 bytes."""


class JobClass(StrEnum):
    """How urgent a job is; earlier members go first."""

    INTERACTIVE = "interactive"  # a person waits for the first token
    STANDARD = "standard"  # a program waits for the result
    BATCH = "batch"  # somebody reads it later
    BACKGROUND = "background"  # whenever there is room


class EngineName(StrEnum):
    """The execution paths; also the names of their Celery queues."""

    CPU = "cpu"  # the model on host cores
    HYBRID = "hybrid"  # one model split over CPU and accelerator
    CUDA = "cuda"  # NVIDIA fast path for answers
    GPU = "gpu"  # any accelerator torch knows; long sequences, training


def _bounded_text(value: str) -> str:
    size = len(value.encode())
    if size > MAX_TEXT_BYTES:
        raise ValueError(f"at most {MAX_TEXT_BYTES} bytes of UTF-8, this has {size}")
    return value


Text = Annotated[str, Field(min_length=1)]
Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$")]
JobId = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:-]{0,127}$")]


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
    expires_s: float | None = Field(default=None, gt=0)
    # seconds the result stays readable after the end
    keep_s: int = Field(default=86_400, ge=1, le=7 * 86_400)
    # absent: one is drawn at acceptance and kept in the record
    seed: int | None = Field(default=None, ge=0, lt=2**63)


class Generate(_Job):
    """Continue `prompt` by up to `max_tokens` tokens."""

    kind: Literal["generate"] = "generate"
    prompt: Text
    max_tokens: int = Field(default=128, ge=1, le=1_000_000)
    # 0 takes the likeliest token each time
    temperature: float = Field(default=0.0, ge=0, le=10)
    top_k: int | None = Field(default=None, ge=1)
    top_p: float | None = Field(default=None, gt=0, le=1)
    stop: tuple[Annotated[str, Field(min_length=1, max_length=200)], ...] = Field(
        default=(), max_length=16
    )

    @model_validator(mode="after")
    def _bounded(self) -> "Generate":
        _bounded_text(self.prompt)
        return self


class Score(_Job):
    """Log-probability of each token of `text` given those before it, and the perplexity."""

    kind: Literal["score"] = "score"
    text: Text

    @model_validator(mode="after")
    def _bounded(self) -> "Score":
        _bounded_text(self.text)
        return self


class ModelShape(BaseModel):
    """The decoder that training creates; ignored when the model exists already."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    layers: int = Field(default=4, ge=1, le=256)
    # width of the residual stream
    hidden: int = Field(default=128, ge=8, le=65_536)
    heads: int = Field(default=4, ge=1, le=512)
    kv_heads: int = Field(default=2, ge=1, le=512)
    # width of the SwiGLU's inner layer; absent: 8/3 of hidden, rounded up to 32
    mlp: int | None = Field(default=None, ge=8, le=1_048_576)
    vocabulary: int = Field(default=1024, ge=257, le=1_000_000)
    # longest sequence, in tokens
    context: int = Field(default=256, ge=8, le=1_000_000)
    tied_head: bool = True

    @model_validator(mode="after")
    def _divides(self) -> "ModelShape":
        if self.heads % self.kv_heads:
            raise ValueError(f"heads ({self.heads}) must be a multiple of kv_heads")
        if self.hidden % (2 * self.heads):
            raise ValueError(f"hidden ({self.hidden}) must be a multiple of 2 * heads")
        return self


class Train(_Job):
    """Train `model` on text, in slices that each end in a checkpoint."""

    kind: Literal["train"] = "train"
    job_class: JobClass = Field(default=JobClass.BACKGROUND, alias="class")
    # exactly one of the two
    text: Text | None = None
    # a file or folder under the cluster's data folder
    path: str | None = Field(default=None, min_length=1, max_length=4096)
    shape: ModelShape = ModelShape()
    steps: int = Field(default=200, ge=1, le=100_000_000)
    # sequences an optimiser step, split in `accumulate` parts
    batch: int = Field(default=16, ge=1, le=65_536)
    accumulate: int = Field(default=1, ge=1, le=4096)
    # tokens a training sequence; absent: the model's context
    sequence: int | None = Field(default=None, ge=8)
    learning_rate: float = Field(default=2e-3, gt=0, le=1)
    warmup_steps: int = Field(default=20, ge=0)
    weight_decay: float = Field(default=0.1, ge=0, le=1)
    clip_norm: float = Field(default=1.0, gt=0)
    # share of the text kept aside to measure the loss on
    held_out: float = Field(default=0.1, gt=0, lt=1)
    # seconds a slice: the longest others wait for this slot
    slice_s: float = Field(default=5.0, ge=0.1, le=3600)

    @model_validator(mode="after")
    def _one_source(self) -> "Train":
        if (self.text is None) == (self.path is None):
            raise ValueError("give exactly one of text and path")
        if self.text is not None:
            _bounded_text(self.text)
        if self.batch % self.accumulate:
            raise ValueError(f"batch ({self.batch}) must be a multiple of accumulate")
        return self


Job = Annotated[Generate | Score | Train, Field(discriminator="kind")]
KINDS: dict[str, type[Generate] | type[Score] | type[Train]] = {
    "generate": Generate,
    "score": Score,
    "train": Train,
}
_ADAPTER: TypeAdapter[Generate | Score | Train] = TypeAdapter(Job)


def parse_job(data: object) -> Generate | Score | Train:
    """Validates a job that arrived as JSON data.

    Raises:
        InvalidJob: naming the first wrong field, its value and what is allowed.
    """
    if not isinstance(data, dict):
        raise InvalidJob.of("job", data, "an object such as {'kind': 'generate', …}")
    if data.get("kind") not in KINDS:
        raise InvalidJob.of("kind", data.get("kind"), " or ".join(KINDS))
    try:
        return _ADAPTER.validate_python(data)
    except ValidationError as error:
        raise _first_fault(error, KINDS[data["kind"]]) from None


def _first_fault(error: ValidationError, model: type[BaseModel]) -> InvalidJob:
    fault = error.errors(include_url=False)[0]
    # the union puts the kind in front of every location
    path = [str(part) for part in fault["loc"] if part not in KINDS]
    field = ".".join(path) or "job"
    if fault["type"] == "extra_forbidden":
        return InvalidJob.of(field, fault["input"], f"no such field{_nearest(path[-1], model)}")
    if not path and isinstance(fault["input"], dict):
        return InvalidJob(fault["msg"].removeprefix("Value error, "), field=field)
    allowed = fault["msg"].removeprefix("Value error, ")
    return InvalidJob.of(field, fault["input"], allowed[0].lower() + allowed[1:])


def _nearest(name: str, model: type[BaseModel]) -> str:
    known = [info.alias or key for key, info in model.model_fields.items()]
    if "shape" in known:
        known += list(ModelShape.model_fields)
    close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    return f"; did you mean {close[0]!r}?" if close else f"; known are {', '.join(sorted(known))}"


def to_wire(job: Generate | Score | Train) -> dict[str, Any]:
    """The job as JSON data, the way any Celery producer would write it."""
    return job.model_dump(mode="json", by_alias=True, exclude_none=True)
