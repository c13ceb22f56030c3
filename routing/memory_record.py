"""One job in the memory board. Owns what a record holds and how it is shown; knows nothing of
other jobs or of pools."""

from dataclasses import dataclass, field

from noidle.acceptance import facts, goal, held_set
from noidle.jobs import JobClass
from noidle.record import UNKNOWN, waited_of
from noidle.results import Decision, JobResult, JobState, JobStatus, StreamEvent, Waited
from routing import wire
from routing.board import AnyJob, Checkpoint, Claim, HeldJob
from routing.bounds import AFTER_KEEP_S
from routing.ended import Run
from routing.envelope import Envelope


@dataclass(slots=True, kw_only=True)
class Record:
    """The fields of the Redis record; times are milliseconds of the board's clock."""

    id: str
    kind: str | None
    # absent for a job that was refused
    job: AnyJob | None
    envelope: Envelope
    keep_s: int
    accepted: float
    seed: int | None = None
    digest: str = ""
    delivery: str = ""
    state: JobState = JobState.HELD
    held_set: str = ""
    order: float = 0.0
    expires_at: float | None = None
    deadline_at: float | None = None
    held_since: float = 0.0
    held_ms: float = 0.0
    # what it waits for and since when; milliseconds by cause of the waits that are over
    cause: str | None = None
    cause_at: float = 0.0
    waits: dict[str, float] = field(default_factory=dict)
    queued_ms: float | None = None
    leased: float = 0.0
    lease_end: float = 0.0
    token: str | None = None
    # the operation and token that ended the last lease
    spent: str = ""
    pool: str | None = None
    attempt: int = 0
    pid: int | None = None
    crashes: int = 0
    # crashes beside other runs, and alone
    falls: int = 0
    lone_falls: int = 0
    alone: bool = False
    # in all, and since its last whole slice
    preemptions: int = 0
    row: int = 0
    # it is to leave its pool, and keep nothing there (true); absent: it may stay
    leave: bool | None = None
    # progress since the claim
    moved: bool = False
    text: str = ""
    tokens: tuple[int, ...] = ()
    revision: str | None = None
    first: float | None = None
    step: int | None = None
    best: int = 0
    loss: float | None = None
    checkpoint: Checkpoint | None = None
    service: float = 0.0
    decisions: list[Decision] = field(default_factory=list)
    said: str = ""
    why: str | None = None
    events: list[StreamEvent] = field(default_factory=list)
    result: JobResult | None = None
    ended: float | None = None
    # links were sent, or there are none
    settled: bool = True

    @property
    def running(self) -> bool:
        return self.state in (JobState.RUNNING, JobState.CANCELLING)

    def end_wait(self, now: float, unsaid: str | None = None) -> None:
        """What it was held for counts up to now; `unsaid`: the cause where none was noted."""
        since = self.cause_at if self.cause else self.held_since
        cause = self.cause or unsaid
        if cause:
            self.waits[cause] = self.waits.get(cause, 0.0) + max(0.0, now - since)
        self.cause = None

    def wait_for(self, cause: str | None, now: float) -> None:
        """The first cause that is noted counts from the beginning of the wait."""
        if cause is None or cause == self.cause:
            return
        since = now if self.cause else self.held_since
        self.end_wait(now)
        self.cause, self.cause_at = cause, since

    @property
    def again(self) -> bool:
        """The id may be sent again."""
        return self.state.final and self.state is not JobState.DONE

    def gone(self, now: float) -> bool:
        """Its time-to-live is over."""
        keep_s = self.keep_s if self.settled else max(self.keep_s, AFTER_KEEP_S)
        return self.ended is not None and now >= self.ended + keep_s * 1000


def has_links(envelope: Envelope) -> bool:
    return bool(envelope.link or envelope.link_error or envelope.chain or envelope.chord)


def to_held(record: Record) -> HeldJob:
    """What held.lua would answer, read as its answer is."""
    assert record.job is not None
    storage = record.checkpoint.storage if record.checkpoint else None
    emitted = len(record.tokens)
    times = record.order, record.accepted, record.held_since
    return wire.to_held([facts(record.job), *times, emitted, record.alone, storage])


def to_run(record: Record, tokens: int, now: float) -> Run:
    """What finish.lua would keep of it."""
    assert record.job is not None
    return wire.to_run([facts(record.job), record.leased, record.first, now, tokens])


def to_claim(record: Record, now: float) -> Claim:
    assert record.job is not None
    assert record.seed is not None
    return Claim(
        job=record.job,
        seed=record.seed,
        attempt=record.attempt,
        text=record.text,
        tokens=record.tokens,
        revision=record.revision,
        checkpoint=record.checkpoint,
        accepted_ms=int(record.accepted),
        held_ms=record.held_ms,
        leased_ms=int(record.leased),
        first_token_ms=None if record.first is None else int(record.first),
        claimed_ms=int(now),
    )


def to_status(record: Record) -> JobStatus:
    job = record.job
    why = record.why
    if record.state is JobState.HELD and record.decisions:
        why = record.decisions[0].reason
    return JobStatus(
        id=record.id,
        state=record.state,
        kind=record.kind or UNKNOWN,
        model=job.model if job else UNKNOWN,
        job_class=job.job_class if job else JobClass.STANDARD,
        pool=record.pool,
        attempt=record.attempt,
        crashes=record.crashes,
        preemptions=record.preemptions,
        progress=record.step or len(record.tokens),
        goal=goal(job) if job else None,
        loss=record.loss,
        accepted_ms=int(record.accepted),
        why=why,
    )


def to_waited(record: Record, now: float) -> Waited:
    held_ms, causes = record.held_ms, dict(record.waits)
    if record.state is JobState.HELD:
        held_ms += max(0.0, now - record.held_since)
    if record.cause:
        causes[record.cause] = causes.get(record.cause, 0.0) + max(0.0, now - record.cause_at)
    return waited_of(held_ms, causes)


def with_times(record: Record, result: JobResult, now: float) -> JobResult:
    """The result with the times that the board measures."""
    waited = now - record.held_since if record.state is JobState.HELD else 0.0
    own = result.times
    measured = {
        "held_ms": record.held_ms + max(0.0, waited),
        "queued_ms": record.queued_ms if own.queued_ms is None else own.queued_ms,
        "total_ms": max(0.0, now - record.accepted),
        "ttft_ms": None if record.first is None else max(0.0, record.first - record.accepted),
    }
    times = own.model_copy(update=measured)
    return result.model_copy(update={"id": record.id, "times": times})


def set_behind(record: Record) -> str:
    """The held set of a record that goes on from its checkpoint."""
    assert record.job is not None
    return held_set(record.job, record.checkpoint.storage if record.checkpoint else None)
