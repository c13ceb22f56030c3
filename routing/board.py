"""The job board: what routers and pools agree on through Redis. Owns the interface and the records
that pass through it. RedisBoard and MemoryBoard keep it, and both pass one contract suite. Knows
nothing of Celery workers, engines or policy."""

from dataclasses import dataclass
from enum import StrEnum
from typing import NamedTuple, Protocol

from noidle.jobs import EngineName, Generate, JobClass, Score, Train
from noidle.results import Decision, JobError, JobResult, JobStatus, Waited
from noidle.snapshot import ModelInfo, PoolDetail, PoolSnapshot
from routing.envelope import Envelope
from routing.lessons import Lessons
from routing.running import Preemption, RunningJob

AnyJob = Generate | Score | Train


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldJob:
    """What the policy must know of a job that waits."""

    id: str
    kind: str
    model: str
    job_class: JobClass
    engine: EngineName | None
    label: str | None
    # UTF-8 bytes of prompt or text; the router holds no tokenizer
    prompt_bytes: int
    # tokens to generate, less those a former attempt emitted
    max_tokens: int
    # only pools on this storage can read its checkpoint
    storage: str | None
    # Redis time
    accepted_ms: int
    held_since_ms: int
    # order among its class: time of acceptance, or service received for training slices
    order: float
    # suspected of crashing its engine: must run with nothing beside it
    alone: bool = False
    # Redis time by which it must have ended
    deadline_ms: int | None = None
    # the producer's hint; absent: what such jobs had is learned
    expected_tokens: int | None = None
    # bytes and hash of each beginning of the prompt, the shortest first
    beginnings: tuple[tuple[int, str], ...] = ()


class PoolLoad(NamedTuple):
    """What the board has promised in one pool, counted from its leases. A tuple, since each look
    compares one a pool with the last one."""

    in_flight: int = 0
    kv_tokens: int = 0
    memory_bytes: int = 0
    # a lease that must run alone holds the pool
    alone: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Lease:
    """A wish to lease: granted only if everything still holds when the script runs."""

    job: str
    pool: str
    queue: str
    # random, single-use; fences everything done under it
    token: str
    # the Celery message the script pushes, complete
    message: str
    kv_tokens: int = 0
    memory_bytes: int = 0
    # limits checked against what is leased already
    slots: int = 1
    kv_tokens_total: int | None = None
    # summed over `sharers` too
    memory_free_bytes: int | None = None
    # the other pools on its device
    sharers: tuple[str, ...] = ()
    alone: bool = False
    decision: Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where a training job goes on; the board holds the current one."""

    # revision, named by step and token
    name: str
    storage: str
    step: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """What a pool needs to run a job it claimed."""

    job: AnyJob
    seed: int
    attempt: int
    # emitted by former attempts; the next one continues behind it
    text: str
    tokens: tuple[int, ...]
    # revision of the weights the emitted tokens came from
    revision: str | None
    checkpoint: Checkpoint | None
    accepted_ms: int
    held_ms: float
    leased_ms: int
    # Redis time of the first token, where a former attempt emitted it
    first_token_ms: int | None
    # Redis time of this claim
    claimed_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Refusal:
    """Why a claim was not granted."""

    # stale: token used up, replaced or job ended; elsewhere: leased to another pool, which
    # keeps its lease; cancelled: ended before it started
    reason: str
    # elsewhere: the pool that holds the lease, whose own queue the message belongs to
    pool: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StepReport:
    """What one run did since the last report; a run that did not move is left out, so that
    only moving runs keep their leases."""

    job: str
    token: str
    text: str = ""
    tokens: tuple[int, ...] = ()
    revision: str | None = None
    # training: steps done, of how many, latest loss
    step: int | None = None
    goal: int | None = None
    loss: float | None = None
    tokens_per_s: float | None = None


class Verdict(StrEnum):
    """The board's answer to a report."""

    GO_ON = "go_on"  # the lease is renewed
    PAUSE = "pause"  # renewed, and asked for: yield or hand back at the next step
    FREE = "free"  # the same, and keep nothing of it in memory
    CANCELLED = "cancelled"  # stop, then finish as cancelled
    OVERDUE = "overdue"  # its deadline passed: stop, then finish as failed with code deadline
    LOST = "lost"  # another attempt owns the job now: drop it silently


@dataclass(frozen=True, slots=True, kw_only=True)
class PumpRole:
    """The right to decide, until it expires; `fence` makes a former holder's leases fail."""

    router: str
    fence: int


class Board(Lessons, Protocol):
    """All times are Redis's clock. Every method is one script: it happens whole or not at all,
    and may be called again after an error.

    Every method raises ClusterUnavailable where Redis cannot be reached after a few retries:
    producers are told, routers and pools call again. A `report` that raised is sent again with
    the same list or with newer ones merged behind it."""

    def now_ms(self) -> int: ...

    # 1. Accept
    def accept(self, job: AnyJob, envelope: Envelope | None = None) -> bool:
        """Records and holds the job; False if this id is there already (accepting twice is
        accepting once; an id whose job ended may be sent again once cancelled or failed).

        Raises:
            Overloaded: the held limit or Redis's memory is reached.
            InvalidJob: the model is unknown, or max_tokens exceeds its context.
        """

    def refuse(
        self, job_id: str, kind: str | None, error: JobError, envelope: Envelope | None = None
    ) -> None:
        """Ends a job that cannot be accepted with a failed result, unless the id is known."""

    def cancel(self, job_id: str, revocation: str | None = None) -> bool:
        """Ends a held or leased job at once, marks a running one; False if unknown or ended.
        Of several calls that name the same revocation the first one that finds the job counts,
        so that the others do not hit what is sent again under its id."""

    # 2. Decide
    def take_pump(self, router: str) -> PumpRole | None:
        """Takes or renews the pump's role for 3 s; None while another router holds it."""

    def wait_for_work(self, timeout_s: float) -> bool:
        """Blocks until somebody woke the pump or the time is over."""

    def give_up_pump(self, role: PumpRole) -> None:
        """Lets another router take the role at once, where this one ends in order."""

    def held(self, per_set: int) -> list[HeldJob]:
        """The first `per_set` of every held set, fewer where a class has many sets (at most 256
        jobs of a class, of other sets with every call); jobs that expired, or whose
        deadline passed, are ended, not shown."""

    def loads(self) -> dict[str, PoolLoad]: ...

    def waiting(self, per_set: int) -> tuple[list[HeldJob], dict[str, PoolLoad]]:
        """`held` and `loads`, in one trip."""

    def pools(self) -> list[PoolSnapshot]:
        """Snapshots not older than their time-to-live."""

    def models(self) -> dict[str, ModelInfo]: ...

    def lease(self, role: PumpRole, leases: list[Lease]) -> list[bool]:
        """Grants each lease whose job is still held and whose pool is published, ready and still
        has room, and pushes its message. Queue messages of other Celery priorities are a
        producer's matter."""

    def running(self, pools: list[str]) -> list[RunningJob]: ...

    def preempt(self, role: PumpRole, wishes: list[Preemption]) -> list[bool]:
        """Asks runs to leave, in the answer to the next report; holds again what is not claimed.
        Refused where lease or job in need is gone, or that job's class is not higher, or the run
        made room 3 times since its last whole slice. No crash."""

    def note(self, decisions: list[Decision]) -> None:
        """Keeps why jobs wait, for `explain`; no repeat of the last one is kept."""

    def reap(self, role: PumpRole) -> list[str]:
        """Holds again what lost its lease; returns those ids. After a gap in its own passes or
        a backward clock, extends every lease once instead. A job whose lone crashes reached
        the limit ends failed."""

    def fail(self, job_id: str, error: JobError, decision: Decision | None = None) -> bool:
        """Ends a held job that cannot be placed; the decision is kept."""

    def guard_memory(self) -> str | None:
        """Closes acceptance for 3 s where Redis uses over 80 % of its memory limit; says why."""

    def take_after(self) -> tuple[JobResult, Envelope] | None:
        """The next ended job whose Celery links are to be sent; stays taken until `sent`."""

    def sent(self, job_id: str) -> None: ...

    # 3. Run
    def claim(self, job_id: str, token: str, pool: str, pid: int) -> Claim | Refusal: ...

    def report(self, pool: str, reports: list[StepReport]) -> dict[str, Verdict]:
        """Once an engine step: checks tokens, appends to streams, renews leases. To be made on
        the board that claimed: it knows how much each stream has, so that a report which is
        repeated adds its text once, and a run whose text Redis lost starts over."""

    def finish(self, job_id: str, token: str, result: JobResult) -> bool:
        """Writes noidle's result and Celery's entry, ends the stream, releases the lease, sets
        times-to-live; fills in held_ms, total_ms and ttft_ms. False if the token is stale."""

    def yield_slice(
        self, job_id: str, token: str, checkpoint: Checkpoint, model: ModelInfo, service_s: float
    ) -> bool:
        """Ends a training slice: current checkpoint, model's revision, held again."""

    def hand_back(self, job_id: str, token: str, *, crashed: bool = False) -> bool:
        """Returns a lease; what was emitted stays. `crashed` counts towards the limit when the
        job ran alone, and makes it suspect when it did not."""

    def release_unclaimed(self, pool: str) -> list[str]:
        """Returns the leases of a draining pool that it has not claimed."""

    # 4. Observe
    def publish(self, snapshot: PoolSnapshot, detail: PoolDetail | None = None) -> None:
        """Wakes the pump when the pool is new or its state, pressure or models changed."""

    def register(self, model: ModelInfo) -> None: ...

    def forget(self, model: str, storage: str) -> bool:
        """A model was removed from its storage: jobs that name it are refused from now on.
        False where it is not known to lie there."""

    def leave(self, pool: str) -> None:
        """Forgets a pool that ended in order."""

    def status(self, job_id: str) -> JobStatus | None: ...

    def result(self, job_id: str) -> JobResult | None: ...

    def decisions(self, job_id: str) -> list[Decision]: ...

    def waited(self, job_id: str) -> Waited | None:
        """How long it has been held, and what for."""

    def jobs(self, limit: int) -> list[JobStatus]:
        """The newest jobs, held and running first."""

    def details(self) -> list[PoolDetail]: ...
