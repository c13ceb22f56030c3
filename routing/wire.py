"""How the board's records become arguments of its scripts, and answers become records. Owns the
order of both; the scripts in routing/scripts say the same in their heads."""

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from noidle.jobs import EngineName, JobClass, parse_job
from noidle.results import JobResult
from noidle.script import Argument
from routing.board import (
    Checkpoint,
    Claim,
    HeldJob,
    Lease,
    PoolLoad,
    PumpRole,
    Refusal,
    StepReport,
    Verdict,
)
from routing.ended import Run
from routing.envelope import Envelope
from routing.novelty import mark
from routing.outcome import celery_outcome, why
from routing.running import Preemption, RunningJob

Position = tuple[int, int]
"""UTF-8 bytes and tokens that a run has on its stream."""

VERDICTS = {
    "g": Verdict.GO_ON,
    "p": Verdict.PAUSE,
    "f": Verdict.FREE,
    "c": Verdict.CANCELLED,
    "d": Verdict.OVERDUE,
    "l": Verdict.LOST,
}
_NONE: Mapping[str, PoolLoad] = MappingProxyType({})
_BOARD_TIMES = frozenset({"held_ms", "total_ms", "ttft_ms"})


def role_text(role: PumpRole) -> str:
    return f"{role.fence} {role.router}"


def lease_arguments(lease: Lease) -> list[Argument]:
    return [
        lease.job,
        lease.pool,
        lease.queue,
        lease.token,
        lease.message,
        lease.kv_tokens,
        lease.memory_bytes,
        lease.slots,
        "" if lease.kv_tokens_total is None else lease.kv_tokens_total,
        "" if lease.memory_free_bytes is None else lease.memory_free_bytes,
        int(lease.alone),
        lease.decision.model_dump_json(exclude_none=True),
        mark(lease.decision),
        lease.decision.cause or "",
        json.dumps(lease.sharers) if lease.sharers else "",
    ]


def preemption_arguments(wish: Preemption) -> list[Argument]:
    return [
        wish.job,
        wish.token,
        wish.for_job or "",
        "1" if wish.free_memory else "",
        wish.decision.model_dump_json(exclude_none=True),
        mark(wish.decision),
    ]


def report_arguments(report: StepReport, position: Position | None) -> list[Argument]:
    return [
        report.job,
        report.token,
        *(("", "") if position is None else position),
        *_piece(report.text, report.tokens),
        report.revision or "",
        "" if report.step is None else report.step,
        "" if report.goal is None else report.goal,
        "" if report.loss is None else report.loss,
        "" if report.tokens_per_s is None else report.tokens_per_s,
    ]


def position_behind(report: StepReport, position: Position) -> Position:
    return position[0] + len(report.text.encode()), position[1] + len(report.tokens)


def finish_arguments(token: str, result: JobResult, position: Position | None) -> list[Argument]:
    """`position`: how much of the result's text the stream has, as far as is known."""
    times = result.times.model_dump_json(exclude_none=True, exclude=set(_BOARD_TIMES))
    status, value = celery_outcome(result)
    return [
        result.id,
        token,
        result.state.value,
        result.model_dump_json(exclude_none=True, exclude={"times"})[:-1],
        times[:-1],
        status,
        value,
        *_length(result),
        *_rest(result, position),
        why(result),
    ]


def _length(result: JobResult) -> tuple[Argument, Argument]:
    if result.text is None:
        return "", ""
    return len(result.text.encode()), len(result.tokens or ())


def _rest(result: JobResult, position: Position | None) -> list[Argument]:
    if result.text is None or position is None:
        return ["", "", *_piece("", ())]
    # what was emitted ended with a whole character
    text = result.text.encode()[position[0] :].decode(errors="ignore")
    return [*position, *_piece(text, (result.tokens or ())[position[1] :])]


def _piece(text: str, tokens: tuple[int, ...]) -> tuple[Argument, Argument, Argument]:
    return text, len(tokens), f"[{','.join(map(str, tokens))}]"


def to_held(entry: list[Any]) -> HeldJob:
    facts, order, accepted, since, emitted, alone, storage = entry
    deadline_s, expected = facts.get("deadline_s"), facts.get("expected_tokens")
    return HeldJob(
        id=facts["id"],
        kind=facts["kind"],
        model=facts["model"],
        job_class=JobClass(facts["class"]),
        engine=EngineName(facts["engine"]) if facts["engine"] else None,
        label=facts["label"],
        prompt_bytes=facts["prompt_bytes"],
        max_tokens=max(0, facts["max_tokens"] - emitted),
        storage=storage,
        accepted_ms=int(accepted),
        held_since_ms=int(since),
        order=float(order),
        alone=bool(alone),
        deadline_ms=None if deadline_s is None else int(accepted + 1000 * deadline_s),
        expected_tokens=None if expected is None else max(0, expected - emitted),
        beginnings=tuple((size, digest) for size, digest in facts.get("beginnings", ())),
    )


def to_running(entry: list[Any]) -> RunningJob:
    facts, pool, token, claimed, kv, memory, progress, goal, preemptions, leaving = entry
    return RunningJob(
        id=facts["id"],
        kind=facts["kind"],
        model=facts["model"],
        job_class=JobClass(facts["class"]),
        pool=pool,
        token=token,
        claimed_ms=None if claimed is None else int(claimed),
        kv_tokens=kv,
        memory_bytes=memory,
        progress=progress,
        goal=goal,
        preemptions=preemptions,
        leaving=leaving,
    )


def to_run(entry: list[Any]) -> Run:
    facts, leased, first, ended, tokens = entry
    return Run(
        job=facts["id"],
        kind=facts["kind"],
        model=facts["model"],
        label=facts["label"],
        leased_ms=int(leased),
        first_ms=None if first is None else int(first),
        ended_ms=int(ended),
        tokens=int(tokens),
        max_tokens=facts["max_tokens"],
    )


def to_loads(answer: str, known: Mapping[str, PoolLoad] = _NONE) -> dict[str, PoolLoad]:
    """A pool of which nothing changed keeps its record."""
    loads: dict[str, PoolLoad] = {}
    for pool, counts in json.loads(answer).items():
        load, before = PoolLoad(*counts), known.get(pool)
        loads[pool] = load if before is None or before != load else before
    return loads


def to_claim(answer: list[str]) -> Claim | Refusal:
    if answer[0] != "claimed":
        return Refusal(reason=answer[0], pool=answer[1] if len(answer) > 1 else None)
    _, job, seed, attempt, text, tokens, revision, checkpoint = answer[:8]
    accepted, held, leased, first, now = answer[8:]
    return Claim(
        job=parse_job(json.loads(job)),
        seed=int(seed),
        attempt=int(attempt),
        text=text,
        tokens=tuple(json.loads(tokens)),
        revision=revision or None,
        checkpoint=Checkpoint(**json.loads(checkpoint)) if checkpoint else None,
        accepted_ms=int(float(accepted)),
        held_ms=float(held),
        leased_ms=int(float(leased)),
        first_token_ms=int(float(first)) if first else None,
        claimed_ms=int(float(now)),
    )


def to_envelope(fields: Mapping[str, Any]) -> Envelope:
    known = Envelope.__dataclass_fields__
    return Envelope(**{name: value for name, value in fields.items() if name in known})
