"""Accepting and cancelling a job, as a producer does it. Owns what a fresh record holds; the
client and the router's board call the same two functions. Knows nothing of pools or policy."""

import hashlib
import json
import random
import uuid
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import redis
from redis.exceptions import OutOfMemoryError

from noidle.beginning import beginnings
from noidle.connection import reachable
from noidle.errors import InvalidJob, Overloaded
from noidle.jobs import Generate, Score, Train, to_wire
from noidle.script import Argument, Script
from noidle.snapshot import ModelInfo

HELD_LIMIT = 100_000
"""Jobs that may wait at once; the next one is refused."""
ORDER_BY_SERVICE = 0.0
"""Order of a training job before its first slice: nobody has had less service."""
PROGRESS_ENTRIES = 1_000
"""Progress events kept on the stream of a training job."""
TURN_BYTES = 16
"""A template writes about five tokens around a message, and a token is about three bytes."""
RETRY_S = 5.0
"""Suggested to a producer that is refused while no router tells better."""
CLOSED_S = 3.0
"""The same where acceptance is closed, which is looked at so often."""
LABEL_SHELVES = 16
"""More would leave each set fewer heads."""
HEARD_MS = 60_000
"""So long a revocation is known by its name."""
_ACCEPT = Script("accept")
_CANCEL = Script("cancel")
_RANDOM = random.SystemRandom()
_MEMORY_FULL = "Redis is at its memory limit"
AnyJob = Generate | Score | Train


def accept(
    client: redis.Redis,
    job: AnyJob,
    envelope: Mapping[str, Any] | None = None,
    *,
    held_limit: int = HELD_LIMIT,
    rng: random.Random = _RANDOM,
) -> bool:
    """Records and holds the job; False if this id is there already. An id whose job ended
    failed, cancelled or expired may be sent again.

    `envelope` is what Celery put around the job: link, link_error, chain, chord, group,
    parent_id, and the message's delivery tag.

    Raises:
        InvalidJob: the model is unknown or too short, or the id belongs to another job.
        Overloaded: the cluster takes no more jobs now.
        ClusterUnavailable: Redis does not answer.
    """
    arguments = _arguments(job, envelope or {}, held_limit, rng)
    with reachable(client):
        try:
            answer = _ACCEPT(client, *arguments)
        except OutOfMemoryError:
            answer = ["full", _MEMORY_FULL]
    return _understand(job, answer)


def accept_many(
    client: redis.Redis,
    jobs: Sequence[tuple[AnyJob, random.Random]],
    *,
    held_limit: int = HELD_LIMIT,
) -> list[bool | InvalidJob | Overloaded]:
    """Like `accept` for many jobs in one round trip, each with the source of its seed; a refusal
    takes the place of an answer.

    Raises:
        ClusterUnavailable: Redis does not answer.
    """
    calls = [_arguments(job, {}, held_limit, rng) for job, rng in jobs]
    with reachable(client):
        answers = _ACCEPT.many(client, calls)
    return [_outcome(job, answer) for (job, _), answer in zip(jobs, answers, strict=True)]


def cancel(client: redis.Redis, job_id: str, revocation: str | None = None) -> bool:
    """Ends a held or leased job at once, marks a running one; False if unknown or ended.

    Args:
        revocation: name of a call that several processes make, each in its own time: the first
            one cancels, so that the same id may be sent again at once.

    Raises:
        ClusterUnavailable: Redis does not answer.
    """
    with reachable(client):
        if revocation is None:
            return bool(_CANCEL(client, job_id, uuid.uuid4().hex, ""))
        return bool(_CANCEL(client, job_id, revocation, HEARD_MS))


def held_set(job: AnyJob, storage: str | None = None) -> str:
    """`class:requirement`, the name of the held set: jobs of one set can run in the same pools.
    The size is a power of two of estimated tokens, so that no oversize job hides a small one.
    Labels are spread over a few sets, so that the flood of one hides few others."""
    engine = job.engine.value if job.engine else "*"
    size = (prompt_bytes(job) // 3 + tokens_wanted(job)).bit_length()
    shelf = f"|{zlib.crc32(job.label.encode()) % LABEL_SHELVES}" if job.label else ""
    return f"{job.job_class.value}:{job.kind}|{job.model}|{engine}|{storage or '*'}|{size}{shelf}"


def prompt_bytes(job: AnyJob) -> int:
    """UTF-8 bytes of what the engine must read; of messages with about what a template puts
    around each."""
    turns = len(job.messages or ()) if isinstance(job, Generate) else 0
    return len(_prompt(job)) + turns * TURN_BYTES


def _prompt(job: AnyJob) -> bytes:
    """What the engine must read, without a template."""
    if isinstance(job, Generate) and job.messages is not None:
        return "".join(f"{one.role.value}{one.content}" for one in job.messages).encode()
    return ((job.prompt if isinstance(job, Generate) else job.text) or "").encode()


def tokens_wanted(job: AnyJob) -> int:
    """Tokens to generate; none for other kinds."""
    return job.max_tokens if isinstance(job, Generate) else 0


def goal(job: AnyJob) -> int | None:
    """What progress counts towards: tokens or training steps."""
    if isinstance(job, Train):
        return job.steps
    return tokens_wanted(job) or None


def written(job: AnyJob) -> str:
    """The job as the record holds it; equal jobs are written equally."""
    return json.dumps(to_wire(job), sort_keys=True)


def digest(text: str) -> str:
    """Tells two jobs of one id apart, by how they are written."""
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def facts(job: AnyJob) -> dict[str, Any]:
    """What the policy must know of the job and never changes; what is not told is absent."""
    known = {
        "id": job.id,
        "kind": job.kind,
        "model": job.model,
        "class": job.job_class.value,
        "engine": job.engine.value if job.engine else None,
        "label": job.label,
        "prompt_bytes": prompt_bytes(job),
        "max_tokens": tokens_wanted(job),
    }
    told = {
        "deadline_s": job.deadline_s,
        "expected_tokens": job.expected_tokens if isinstance(job, Generate) else None,
        "beginnings": beginnings(_prompt(job)),
    }
    return known | {name: value for name, value in told.items() if value}


def different(job: AnyJob) -> InvalidJob:
    """The refusal of an id that belongs to another job."""
    return InvalidJob.of("id", job.id, "a new id: a job with other content has this one")


def unknown_model(job: AnyJob, known: list[str]) -> InvalidJob:
    return InvalidJob.of("model", job.model, " or ".join(sorted(known)))


def too_long(job: AnyJob, context: int) -> InvalidJob:
    return InvalidJob.of(
        "max_tokens", tokens_wanted(job), f"1 to {context}, the context of {job.model}"
    )


def crowded(held: int, retry_s: float | None = None) -> Overloaded:
    """`retry_s`: as the router reckons from how fast jobs start; absent: it did not tell."""
    after_s = RETRY_S if retry_s is None else retry_s
    jobs = "1 job is" if held == 1 else f"{held} jobs are"
    return Overloaded(
        f"{jobs} held already: send again in about {after_s:.0f} s",
        retry_after_s=after_s,
    )


def closed(why: str) -> Overloaded:
    return Overloaded(
        f"no more jobs are accepted now: {why}; send again in about {CLOSED_S:.0f} s",
        retry_after_s=CLOSED_S,
    )


def draw_seed(job: AnyJob, rng: random.Random) -> int:
    """The job's own seed, or one that every JSON reader can hold exactly."""
    return rng.getrandbits(53) if job.seed is None else job.seed


def _arguments(
    job: AnyJob, around: Mapping[str, Any], held_limit: int, rng: random.Random
) -> list[Argument]:
    text = written(job)
    delivery = around.get("delivery")
    fields = {"job": text, **_record(job, rng), **surroundings(around)}
    arguments: list[Argument] = [
        job.id,
        digest(text),
        f"tag:{delivery}" if delivery else f"call:{uuid.uuid4().hex}",
        held_set(job),
        held_limit,
        job.model,
        job.max_tokens if isinstance(job, Generate) else "",
        "" if job.expires_s is None else job.expires_s * 1000,
        planned(job).model_dump_json(exclude_none=True) if isinstance(job, Train) else "",
        ORDER_BY_SERVICE if isinstance(job, Train) else "",
        "" if job.deadline_s is None else job.deadline_s * 1000,
    ]
    for pair in fields.items():
        arguments += pair
    return arguments


def _record(job: AnyJob, rng: random.Random) -> dict[str, str | float]:
    fields: dict[str, str | float] = {
        "facts": json.dumps(facts(job)),
        "kind": job.kind,
        "class": job.job_class.value,
        "seed": str(draw_seed(job, rng)),
        "keep": job.keep_s,
        # one entry a token at most, and the end
        "stream_max": max(PROGRESS_ENTRIES, tokens_wanted(job) + 64),
    }
    told = {"goal": goal(job), "deadline_s": job.deadline_s}
    return fields | {name: value for name, value in told.items() if value is not None}


def surroundings(around: Mapping[str, Any]) -> dict[str, str]:
    """The fields of a record that keep what Celery put around the job."""
    told = {key: value for key, value in around.items() if value}
    fields = {"envelope": json.dumps(told)} if told else {}
    if any(told.get(part) for part in ("link", "link_error", "chain", "chord")):
        fields["after"] = "1"
    if told.get("group"):
        fields["group"] = str(told["group"])
    if told.get("parent_id"):
        fields["parent"] = str(told["parent_id"])
    return fields


def planned(job: Train) -> ModelInfo:
    """The model as it is known before its first checkpoint."""
    return ModelInfo(name=job.model, context=job.shape.context, planned=job.id)


def _outcome(job: AnyJob, answer: list[str] | OutOfMemoryError) -> bool | InvalidJob | Overloaded:
    if isinstance(answer, OutOfMemoryError):
        return closed(_MEMORY_FULL)
    try:
        return _understand(job, answer)
    except (InvalidJob, Overloaded) as refusal:
        return refusal


def _understand(job: AnyJob, answer: list[str]) -> bool:
    match answer:
        case ["accepted"]:
            return True
        case ["known"]:
            return False
        case ["different"]:
            raise different(job)
        case ["full", why]:
            raise closed(why)
        case ["crowded", held, retry_s]:
            raise crowded(int(held), float(retry_s) if retry_s else None)
        case ["unknown_model", *known]:
            raise unknown_model(job, known)
        case ["context", context]:
            raise too_long(job, int(float(context)))
    raise AssertionError(f"accept.lua answered {answer}")
