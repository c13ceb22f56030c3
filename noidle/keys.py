"""Every Redis key noidle uses, in one place. Lua scripts get the prefix as KEYS[1] and build
the same names; ARCHITECTURE.md lists them for people.

One database, no Redis Cluster: scripts touch keys of several jobs and pools at once."""

PREFIX = "noidle:"
ROUTE_QUEUE = "route"
"""Celery queue of the routers, and the queue a producer sends `noidle.route` to."""
ROUTE_TASK = "noidle.route"
CELERY_RESULT = "celery-task-meta-"
"""Key prefix and channel prefix of Celery's Redis result backend."""


def job(job_id: str) -> str:
    """Hash: the job record. Bound: keep_s after its end; the held limit before."""
    return f"{PREFIX}job:{job_id}"


def stream(job_id: str) -> str:
    """Stream: what the job emitted, ended by one entry with `end`. Bound: keep_s."""
    return f"{PREFIX}stream:{job_id}"


def result(job_id: str) -> str:
    """String: JobResult as JSON. Bound: keep_s."""
    return f"{PREFIX}result:{job_id}"


def decisions(job_id: str) -> str:
    """List: the last decisions about the job, newest first. Bound: 16 entries, keep_s."""
    return f"{PREFIX}decisions:{job_id}"


def held(job_class: str, requirement: str) -> str:
    """Sorted set: ids waiting for room, first come first."""
    return f"{PREFIX}held:{job_class}:{requirement}"


HELD_SETS = f"{PREFIX}held"
"""Set: the names `class:requirement` of the held sets that are not empty."""
ALIVE = f"{PREFIX}alive"
"""Sorted set: every job that has not ended, by acceptance. Bound: the held limit, and the slots."""
EXPIRES = f"{PREFIX}expires"
"""Sorted set: jobs not started yet, by the Redis time (ms) at which they expire."""
DEADLINES = f"{PREFIX}deadlines"
"""Sorted set: jobs that have a deadline, by the Redis time (ms) at which it passes."""
ENDED = f"{PREFIX}ended"
"""List: the ids that ended last, newest first. Bound: 1000 entries."""
REFUSED = f"{PREFIX}refused"
"""List: jobs that there was no room for, as JSON, newest first. Bound: 1000 entries."""
LEASES = f"{PREFIX}leases"
"""Sorted set: job id to the Redis time (ms) at which its lease ends."""
POOLS = f"{PREFIX}pools"
"""Sorted set: pool to the Redis time (ms) of its last snapshot."""
MODELS = f"{PREFIX}models"
"""Hash: model name to ModelInfo as JSON."""
WAKE = f"{PREFIX}wake"
"""List of at most one entry: the pump waits on it."""
PUMP = f"{PREFIX}pump"
"""String: the router that holds the pump's role and its fence number. Bound: 3 s."""
FENCE = f"{PREFIX}fence"
"""Counter: grows each time the pump's role changes hands."""
FULL = f"{PREFIX}full"
"""String: why acceptance is closed. Bound: 3 s, renewed by the pump."""
REAPED = f"{PREFIX}reaped"
"""Hash: when the reaper last passed, and in which run of the server."""
PROFILE = f"{PREFIX}profile"
"""String: the name of the router's profile; absent: response_first."""
WEIGHTS = f"{PREFIX}weights"
"""Hash: label to its share relative to other labels, where it is not 1. Bound: 1000 labels."""
ROUTER = f"{PREFIX}router"
"""String: RouterDetail as JSON, of the router that decides. Bound: 10 s."""
RETRY = f"{PREFIX}retry"
"""String: seconds after which a producer that was refused may try again. Bound: 10 s."""
RUNS = f"{PREFIX}runs"
"""List: what the runs that ended last took, for the router to learn from. Bound: 512 entries."""
AFTER = f"{PREFIX}after"
"""List: ended jobs whose Celery links, chains or chords are still to be sent."""
AFTER_TAKEN = f"{PREFIX}after:taken"
"""Sorted set: those of them that a router is sending, by the Redis time (ms) it took them."""


def pool_leases(pool: str) -> str:
    """Hash: job id to what its lease reserves in the pool."""
    return f"{PREFIX}pool:{pool}:leases"


def pool_snapshot(pool: str) -> str:
    """String: PoolSnapshot as JSON. Bound: 3 s."""
    return f"{PREFIX}pool:{pool}:snapshot"


def pool_detail(pool: str) -> str:
    """String: PoolDetail as JSON. Bound: 3 s."""
    return f"{PREFIX}pool:{pool}:detail"


def pool_mark(pool: str) -> str:
    """String: what of the snapshot wakes the pump when it changes. Bound: 3 s."""
    return f"{PREFIX}pool:{pool}:mark"


def pool_shared(pool: str) -> str:
    """String: the Redis time (ms) of the last claim beside another lease. Bound: a day."""
    return f"{PREFIX}pool:{pool}:shared"


def celery_result(job_id: str) -> str:
    """String, and the channel of the same name: Celery's own result entry."""
    return f"{CELERY_RESULT}{job_id}"


TAKEN = f"{PREFIX}taken"
"""Sorted set: lists of messages that routers took and have not noted yet, to the Redis time
(ms) their router was last seen."""


def taken(router: str) -> str:
    """List: messages between a router's taking and noting them; its next life puts them back."""
    return f"{PREFIX}taken:{router}"


def unacked(worker: str) -> str:
    """Hash of messages under way; with `:index` a sorted set, with `:mutex` a lock. Routers
    share one, each pool has its own."""
    return f"{PREFIX}unacked:{worker}"


def revocation(name: str, job_id: str) -> str:
    """String: what several workers were told has been done. Bound: 60 s."""
    return f"{PREFIX}revocation:{name}:{job_id}"


def revoked(job_id: str) -> str:
    """String: the id was revoked before its job arrived. Bound: 60 s."""
    return f"{PREFIX}revoked:{job_id}"
