"""What comes back: the result, its times, progress events, and the reasons of a routing
decision. Wire models only."""

from enum import StrEnum

from pydantic import BaseModel, ConfigDict

from noidle.jobs import EngineName, JobClass


class JobState(StrEnum):
    """Where a job stands; the first four change, the rest are final."""

    HELD = "held"  # accepted, waiting for room
    LEASED = "leased"  # a slot is promised, its pool has not claimed it yet
    RUNNING = "running"  # a pool claimed it
    CANCELLING = "cancelling"  # running, and asked to stop at its next step
    DONE = "done"  # ended with a result
    FAILED = "failed"  # ended without one; the reason is in the result
    CANCELLED = "cancelled"  # somebody cancelled it
    EXPIRED = "expired"  # expires_s passed before it started

    @property
    def final(self) -> bool:
        return self in (JobState.DONE, JobState.FAILED, JobState.CANCELLED, JobState.EXPIRED)


class _Wire(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True)


class JobError(_Wire):
    """Why a job failed. `code` is one of: invalid, unplaceable, deadline, crashed, engine,
    overloaded, internal."""

    code: str
    message: str
    field: str | None = None
    value: str | None = None
    allowed: str | None = None


class JobTimes(_Wire):
    """Milliseconds, by Redis's clock between processes and the engine's own within it.
    Absent means it did not happen or was not measured."""

    # waiting in the held sets, all rounds together
    held_ms: float | None = None
    # from lease to the engine's start
    queued_ms: float | None = None
    # loading the model, where this job had to wait for it
    load_ms: float | None = None
    # from text to tokens, the chat template included
    tokenize_ms: float | None = None
    prefill_ms: float | None = None
    decode_ms: float | None = None
    # from tokens to text that may be shown, all parts together
    stream_ms: float | None = None
    # from acceptance to the end
    total_ms: float | None = None
    # time to first token, from acceptance
    ttft_ms: float | None = None
    # time per output token after the first
    tpot_ms: float | None = None


class TrainReport(_Wire):
    """Losses are nats a token on the held-out part, all over the same tokens."""

    steps: int
    train_loss: float | None = None
    held_out_loss_before: float | None = None
    held_out_loss: float | None = None
    # what a model that knows only token frequencies reaches on the same text
    unigram_loss: float | None = None
    tokens_seen: int | None = None


class JobResult(_Wire):
    """How a job ended, and where and when. One shape for every kind; what does not apply is
    absent."""

    id: str
    kind: str | None = None
    state: JobState
    error: JobError | None = None
    text: str | None = None
    tokens: tuple[int, ...] | None = None
    prompt_tokens: int | None = None
    # of these, the ones whose keys and values an earlier run had left in the cache
    prefix_tokens: int | None = None
    # stop, length, or eos
    finish_reason: str | None = None
    # natural logarithms. score: of tokens 1…n-1, each given those before it; generate, where the
    # job asked for them: of each of `tokens`
    logprobs: tuple[float, ...] | None = None
    perplexity: float | None = None
    train: TrainReport | None = None
    model: str | None = None
    revision: str | None = None
    engine: EngineName | None = None
    # true where the CPU stood in for a missing accelerator
    stand_in: bool | None = None
    pool: str | None = None
    host: str | None = None
    device: str | None = None
    pid: int | None = None
    attempt: int | None = None
    seed: int | None = None
    times: JobTimes = JobTimes()


class JobStatus(_Wire):
    """What is known of a job that may still be going."""

    id: str
    state: JobState
    kind: str
    model: str
    job_class: JobClass
    pool: str | None = None
    attempt: int = 0
    crashes: int = 0
    # times it had to leave a pool to make room
    preemptions: int = 0
    # tokens emitted, or training steps done
    progress: int = 0
    # tokens or steps asked for
    goal: int | None = None
    # the latest training loss
    loss: float | None = None
    accepted_ms: int = 0
    # what it waits for, where it is held
    why: str | None = None


class StreamEvent(_Wire):
    """One entry of a job's stream. Text events carry text and tokens, progress events step
    and loss; the last event carries only `end`."""

    text: str | None = None
    tokens: tuple[int, ...] = ()
    step: int | None = None
    goal: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None
    end: JobState | None = None


class Waited(_Wire):
    """How long a job has been held, all rounds together, and what for. Seconds."""

    held_s: float
    # by cause; what is left of held_s went before a router looked, or was too short to be noted
    causes: dict[str, float] = {}


class PoolVerdict(_Wire):
    """What the policy thought of one pool for one job."""

    pool: str
    # chosen, wait (best, but full), slower, refused
    outcome: str
    # in words: what ruled it out, or why it won
    reason: str
    # predicted seconds from the decision to the last token
    finish_s: float | None = None


class PoolGroup(_Wire):
    """Pools that a decision does not tell one by one, alike in what keeps the job from them."""

    # slower or refused
    outcome: str
    # in words
    reason: str
    count: int
    # predicted seconds until the job could start there, least and most
    start_from_s: float | None = None
    start_to_s: float | None = None
    # likewise to its last token, at best
    finish_from_s: float | None = None
    finish_to_s: float | None = None
    # their names, as many as are kept
    pools: tuple[str, ...] = ()


class Decision(_Wire):
    """One look of the router at one job."""

    job: str
    at_ms: int
    # lease, wait, preempt, refused, or unplaceable
    action: str
    # what the job waits for from now on, or where it is leased waited for until now: a word that
    # noidle.waiting puts into words
    cause: str | None = None
    pool: str | None = None
    queue: str | None = None
    reason: str
    verdicts: tuple[PoolVerdict, ...] = ()
    # all other pools
    rest: tuple[PoolGroup, ...] = ()
