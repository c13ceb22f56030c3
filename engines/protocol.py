"""The messages between a pool and its engine program, one JSON object a line.

Owns their models and how a line is written and read; PROTOCOL.md describes them for programs
in other languages. Knows nothing of processes or of what an engine computes."""

import json
from typing import Annotated, Any, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from noidle.errors import NoidleError, shorten
from noidle.jobs import Generate, Score, Train, to_wire
from noidle.results import JobError, TrainReport
from noidle.snapshot import ModelInfo, Rates

PROTOCOL_VERSION = 1
MAX_LINE_BYTES = 32 << 20
"""Longest line either side writes: a text of 1 MiB whose bytes are all escaped, with its tokens."""


class ProtocolError(NoidleError):
    """A line that is no message of the protocol."""


class UnknownMessage(ProtocolError):
    """A message of a newer protocol: to be logged and passed over."""


class _Message(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class CheckpointRef(_Message):
    """Where a training run goes on; `name` is a revision, `storage` holds its files."""

    name: str
    storage: str
    step: int


class Start(_Message):
    """Begin `run`, behind what former attempts emitted: the full text of `tokens` begins with
    `text` (characters and stop strings that were not complete are in `tokens` only)."""

    op: Literal["start"] = "start"
    run: str
    # as a producer writes it; the engine validates it again
    job: dict[str, Any]
    seed: int
    attempt: int = 1
    text: str = ""
    tokens: tuple[int, ...] = ()
    # weights that the emitted tokens came from
    revision: str | None = None
    checkpoint: CheckpointRef | None = None
    # the lease's token, shortened: names this attempt's checkpoints
    token8: str = "00000000"

    @classmethod
    def of(cls, run: str, job: Generate | Score | Train, seed: int, **more: Any) -> "Start":
        return cls(run=run, job=to_wire(job), seed=seed, **more)


class Drop(_Message):
    """End `run` at its next step; answered by `dropped`, or by what ended it just before."""

    op: Literal["drop"] = "drop"
    run: str


class Pause(_Message):
    """End `run` to make room: training after the step it is in, with `yield`; text like `drop`."""

    op: Literal["pause"] = "pause"
    run: str
    # memory is what is needed: keep nothing of the run there
    free: bool = False


class Preload(_Message):
    """Have `model` in memory before a job asks for it."""

    op: Literal["preload"] = "preload"
    model: str


class Stop(_Message):
    """Exit now; the end of input means the same."""

    op: Literal["stop"] = "stop"


class Hello(_Message):
    """First line of every engine, once it can take work."""

    event: Literal["hello"] = "hello"
    protocol: int
    device: str
    kinds: tuple[str, ...]
    # names built into the program
    models: tuple[str, ...] = ()
    slots_max: int | None = None
    kv_tokens_total: int | None = None
    # it knows the op `pause`; others are told to `drop`
    pauses: bool = False
    versions: dict[str, str] = {}


class RunStep(_Message):
    """What one run did in a step. With nothing but its name it moved without output: a part of
    a prompt, of a load, of a measurement."""

    run: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    revision: str | None = None
    step: int | None = None
    goal: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None


class Step(_Message):
    """Everything that moved in one step of the engine."""

    event: Literal["step"] = "step"
    # each run at most once
    runs: tuple[RunStep, ...]
    # where the bound depends on the models in memory; goes before the hello's
    kv_tokens_total: int | None = None
    kv_tokens_free: int | None = None
    # what its largest step takes beside weights and cache
    working_bytes: int | None = None
    # models in memory
    loaded: tuple[str, ...] = ()
    # sequences that decoded in this step
    batch: int | None = None


class RunResult(_Message):
    """How a run ended; text and tokens are those of this attempt, all of them emitted before.
    Log-probabilities are those of every attempt's tokens, as a later one reads them all again."""

    text: str | None = None
    tokens: tuple[int, ...] | None = None
    finish_reason: str | None = None
    prompt_tokens: int | None = None
    prefix_tokens: int | None = None
    logprobs: tuple[float, ...] | None = None
    perplexity: float | None = None
    train: TrainReport | None = None
    model: str | None = None
    revision: str | None = None
    load_ms: float | None = None
    tokenize_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    stream_ms: float | None = None
    tpot_ms: float | None = None


class Done(_Message):
    event: Literal["done"] = "done"
    run: str
    result: RunResult


class Failed(_Message):
    """This run cannot go on; others are untouched."""

    event: Literal["failed"] = "failed"
    run: str
    error: JobError


class Yield(_Message):
    """A training slice is over, its state lies in `checkpoint`."""

    event: Literal["yield"] = "yield"
    run: str
    checkpoint: CheckpointRef
    model: ModelInfo
    # time that the slice computed
    service_s: float


class Dropped(_Message):
    event: Literal["dropped"] = "dropped"
    run: str


class ModelSeen(_Message):
    """A model or a revision that can be used from now on."""

    event: Literal["model"] = "model"
    model: ModelInfo


class RatesMeasured(Rates):
    event: Literal["rates"] = "rates"

    def plain(self) -> Rates:
        return Rates.model_validate(self.model_dump(exclude={"event"}))


class Log(_Message):
    event: Literal["log"] = "log"
    level: Literal["debug", "info", "warning", "error"]
    message: str


Op = Annotated[Start | Drop | Pause | Preload | Stop, Field(discriminator="op")]
Event = Annotated[
    Hello | Step | Done | Failed | Yield | Dropped | ModelSeen | RatesMeasured | Log,
    Field(discriminator="event"),
]
AnyOp = Start | Drop | Pause | Preload | Stop
AnyEvent = Hello | Step | Done | Failed | Yield | Dropped | ModelSeen | RatesMeasured | Log
Message = TypeVar("Message")
_OPS: TypeAdapter[AnyOp] = TypeAdapter(Op)
_EVENTS: TypeAdapter[AnyEvent] = TypeAdapter(Event)


def to_line(message: AnyOp | AnyEvent) -> bytes:
    """The message as one line, its end included.

    Raises:
        ProtocolError: longer than MAX_LINE_BYTES.
    """
    line = message.model_dump_json(exclude_none=True).encode() + b"\n"
    if len(line) > MAX_LINE_BYTES:
        raise ProtocolError(f"a line of {len(line)} bytes; at most {MAX_LINE_BYTES} are allowed")
    return line


def parse_op(line: bytes) -> AnyOp:
    return _parse(_OPS, "op", line)


def parse_event(line: bytes) -> AnyEvent:
    return _parse(_EVENTS, "event", line)


def _parse(adapter: TypeAdapter[Message], tag: str, line: bytes) -> Message:
    try:
        return adapter.validate_json(line)
    except ValidationError as error:
        fault = error.errors(include_url=False)[0]
    try:
        data = json.loads(line)
    except ValueError:
        raise ProtocolError(f"not a JSON object: {shorten(line)}") from None
    if fault["type"] == "union_tag_invalid":
        raise UnknownMessage(f"unknown {tag} {shorten(data[tag])}")
    where = ".".join(str(part) for part in fault["loc"]) or tag
    raise ProtocolError(f"{where} = {shorten(fault['input'])}: {fault['msg']}")
