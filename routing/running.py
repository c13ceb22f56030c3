"""Jobs that have a lease, and the wish to take one back. Owns the two records; knows nothing of
who is taken back for whom."""

from dataclasses import dataclass

from noidle.jobs import JobClass
from noidle.results import Decision


@dataclass(frozen=True, slots=True, kw_only=True)
class RunningJob:
    """What must be known of a job in a pool to take its slot away."""

    id: str
    kind: str
    model: str
    job_class: JobClass
    pool: str
    # of its lease
    token: str
    # absent: its pool has not claimed it yet
    claimed_ms: int | None
    # what its lease reserves; nothing of what it would give back is counted beside these
    kv_tokens: int
    memory_bytes: int
    # tokens emitted, or training steps done, and how many are wanted
    progress: int
    goal: int | None
    # preemptions since it last went through: a whole slice of training, or its acceptance
    preemptions: int = 0
    # it is asked to make room already
    leaving: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Preemption:
    """A wish to take a lease back: granted only if everything still holds when the script runs."""

    job: str
    token: str
    # the held job that the room is for, of a higher class; absent: memory runs out
    for_job: str | None
    # what the run holds in memory is to be given up too
    free_memory: bool = False
    # for whoever asks why the job stopped
    decision: Decision
