"""The job board in Redis. Owns the order of calls and what this process remembers between them;
what happens in Redis stands in routing/scripts and noidle/scripts. Knows nothing of Celery
workers, engines or policy."""

import json
import uuid
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import asdict
from typing import cast

import redis
from redis.exceptions import OutOfMemoryError

from noidle import acceptance, keys, record
from noidle.connection import BLOCK_LIMIT_S, reachable
from noidle.jobs import JobClass
from noidle.results import Decision, JobError, JobResult, JobStatus, Waited
from noidle.script import Argument, together
from noidle.snapshot import ModelInfo, PoolDetail, PoolSnapshot
from routing import wire
from routing.board import (
    AnyJob,
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
from routing.bounds import HEADS_A_CLASS, REFUSED_KEEP_S, TAKEN_MS
from routing.envelope import Envelope
from routing.novelty import mark, snapshot_mark
from routing.redis_lessons import RedisLessons

MEMORY_SHARE = 0.8
"""Share of Redis's memory limit above which no job is accepted: scripts go on, the rest fails."""
FULL_MS = 3_000
HEADS_APART = "\x1e"


class RedisBoard(RedisLessons):
    """A Board; threads may share one. A pool must report and finish through the board that
    claimed, which knows how far each stream is."""

    def __init__(
        self,
        client: redis.Redis,
        *,
        lease_s: float = 8.0,
        role_s: float = 3.0,
        snapshot_s: float = 3.0,
        held_limit: int = acceptance.HELD_LIMIT,
        crash_limit: int = 3,
    ) -> None:
        super().__init__(client)
        self._lease_ms = int(lease_s * 1000)
        self._role_ms = int(role_s * 1000)
        self._snapshot_ms = int(snapshot_s * 1000)
        self._held_limit = held_limit
        self._crash_limit = crash_limit
        # by token: how far the stream of each claimed run is
        self._positions: dict[str, wire.Position] = {}
        self._turn = 0
        # as they were last read: what did not change keeps its record
        self._known_heads: dict[str, HeldJob] = {}
        self._known_loads: dict[str, PoolLoad] = {}
        self._known_snapshots: dict[str, PoolSnapshot] = {}

    def now_ms(self) -> int:
        with reachable(self._client):
            seconds, micros = self._client.time()
        return seconds * 1000 + micros // 1000

    def accept(self, job: AnyJob, envelope: Envelope | None = None) -> bool:
        around = asdict(envelope) if envelope else None
        return acceptance.accept(self._client, job, around, held_limit=self._held_limit)

    def refuse(
        self, job_id: str, kind: str | None, error: JobError, envelope: Envelope | None = None
    ) -> None:
        fields = {
            **acceptance.surroundings(asdict(envelope) if envelope else {}),
            **({"kind": kind} if kind else {}),
            "class": JobClass.STANDARD.value,
            "keep": str(REFUSED_KEEP_S),
        }
        pairs = [part for pair in fields.items() for part in pair]
        self._call("refuse", job_id, *_error_arguments(error), *pairs)

    def cancel(self, job_id: str, revocation: str | None = None) -> bool:
        return acceptance.cancel(self._client, job_id, revocation)

    def take_pump(self, router: str) -> PumpRole | None:
        fence = int(self._call("take_pump", router, self._role_ms))
        return PumpRole(router=router, fence=fence) if fence else None

    def give_up_pump(self, role: PumpRole) -> None:
        self._call("give_up_pump", wire.role_text(role))

    def wait_for_work(self, timeout_s: float) -> bool:
        with reachable(self._client):
            # no time at all would wait for ever
            found = self._client.blpop(
                [keys.WAKE], timeout=min(max(timeout_s, 0.01), BLOCK_LIMIT_S)
            )
        return found is not None

    def held(self, per_set: int) -> list[HeldJob]:
        return self._to_held(self._call("held", *self._heads(per_set)))

    def loads(self) -> dict[str, PoolLoad]:
        return self._to_loads(self._call("loads"))

    def waiting(self, per_set: int) -> tuple[list[HeldJob], dict[str, PoolLoad]]:
        heads, loads = (self._scripts["held"], self._heads(per_set)), (self._scripts["loads"], ())
        with reachable(self._client):
            held, promised = together(self._client, heads, loads)
        return self._to_held(held), self._to_loads(promised)

    def _to_held(self, answer: str) -> list[HeldJob]:
        """Of a thousand heads nearly all are as they were at the last look."""
        texts = answer.split(HEADS_APART) if answer else []
        known = self._known_heads
        heads = {text: known.get(text) or wire.to_held(json.loads(text)) for text in texts}
        self._known_heads = heads
        return list(heads.values())

    def _to_loads(self, answer: str) -> dict[str, PoolLoad]:
        self._known_loads = wire.to_loads(answer, self._known_loads)
        return self._known_loads

    def _heads(self, per_set: int) -> list[Argument]:
        self._turn += 1
        return [per_set, HEADS_A_CLASS, self._turn, self._lease_ms]

    def pools(self) -> list[PoolSnapshot]:
        known = self._known_snapshots
        self._known_snapshots = {
            text: known.get(text) or PoolSnapshot.model_validate_json(text)
            for text in self._call("snapshots", "snapshot")
        }
        return list(self._known_snapshots.values())

    def details(self) -> list[PoolDetail]:
        return [PoolDetail.model_validate_json(text) for text in self._call("snapshots", "detail")]

    def models(self) -> dict[str, ModelInfo]:
        with reachable(self._client):
            found = cast("dict[str, str]", self._client.hgetall(keys.MODELS))
        return {name: ModelInfo.model_validate_json(text) for name, text in found.items()}

    def lease(self, role: PumpRole, leases: list[Lease]) -> list[bool]:
        if not leases:
            return []
        arguments = _flat(wire.lease_arguments(lease) for lease in leases)
        answer = self._call("lease", wire.role_text(role), self._lease_ms, *arguments)
        return [letter == "1" for letter in answer]

    def note(self, decisions: list[Decision]) -> None:
        if not decisions:
            return
        arguments = _flat(
            [one.job, one.model_dump_json(exclude_none=True), mark(one), one.cause or ""]
            for one in decisions
        )
        self._call("note", *arguments)

    def reap(self, role: PumpRole) -> list[str]:
        return list(self._call("reap", wire.role_text(role), self._lease_ms, self._crash_limit))

    def fail(self, job_id: str, error: JobError, decision: Decision | None = None) -> bool:
        told = decision.model_dump_json(exclude_none=True) if decision else ""
        return bool(self._call("fail", job_id, *_error_arguments(error), told))

    def guard_memory(self) -> str | None:
        with reachable(self._client):
            info = cast("dict[str, int]", self._client.info("memory"))
            used, limit = info["used_memory"], info["maxmemory"]
            if not limit or used <= MEMORY_SHARE * limit:
                return None
            why = f"Redis uses {used >> 20} of its {limit >> 20} MiB"
            # above the limit itself Redis refuses this too, and every acceptance with it
            with suppress(OutOfMemoryError):
                self._client.set(keys.FULL, why, px=FULL_MS)
        return why

    def take_after(self) -> tuple[JobResult, Envelope] | None:
        answer = self._call("take_after", TAKEN_MS)
        if not answer:
            return None
        _, result, envelope = answer
        return JobResult.model_validate_json(result), wire.to_envelope(json.loads(envelope))

    def sent(self, job_id: str) -> None:
        self._call("sent", job_id)

    def claim(self, job_id: str, token: str, pool: str, pid: int) -> Claim | Refusal:
        name = uuid.uuid4().hex
        claim = wire.to_claim(self._call("claim", job_id, token, pool, pid, name, self._lease_ms))
        if isinstance(claim, Claim):
            self._positions[token] = (len(claim.text.encode()), len(claim.tokens))
        return claim

    def report(self, pool: str, reports: list[StepReport]) -> dict[str, Verdict]:
        if not reports:
            return {}
        arguments: list[Argument] = [pool, self._lease_ms]
        ahead: dict[str, wire.Position] = {}
        for report in reports:
            position = ahead.get(report.token) or self._positions.get(report.token)
            arguments += wire.report_arguments(report, position)
            if position is not None:
                ahead[report.token] = wire.position_behind(report, position)
        letters = self._call("report", *arguments)
        # only now: a report that raised is repeated from where it began
        self._positions.update(ahead)
        verdicts = {
            report.job: wire.VERDICTS[letter]
            for report, letter in zip(reports, letters, strict=True)
        }
        for report in reports:
            if verdicts[report.job] is Verdict.LOST:
                self._positions.pop(report.token, None)
        return verdicts

    def finish(self, job_id: str, token: str, result: JobResult) -> bool:
        result = result.model_copy(update={"id": job_id})
        position = self._positions.get(token)
        answer = self._call("finish", *wire.finish_arguments(token, result, position))
        if answer[0] == "short":
            position = (int(answer[1]), int(answer[2]))
            answer = self._call("finish", *wire.finish_arguments(token, result, position))
        self._positions.pop(token, None)
        return bool(answer[0] == "done")

    def yield_slice(
        self, job_id: str, token: str, checkpoint: Checkpoint, model: ModelInfo, service_s: float
    ) -> bool:
        answer = self._call(
            "yield_slice",
            job_id,
            token,
            json.dumps(asdict(checkpoint)),
            checkpoint.storage,
            checkpoint.step,
            model.name,
            model.model_dump_json(exclude_none=True),
            service_s,
        )
        self._positions.pop(token, None)
        return bool(answer)

    def hand_back(self, job_id: str, token: str, *, crashed: bool = False) -> bool:
        fell = "1" if crashed else ""
        answer = self._call("hand_back", job_id, token, fell, self._crash_limit)
        self._positions.pop(token, None)
        return bool(answer)

    def release_unclaimed(self, pool: str) -> list[str]:
        return list(self._call("release_unclaimed", pool))

    def publish(self, snapshot: PoolSnapshot, detail: PoolDetail | None = None) -> None:
        self._call(
            "publish",
            snapshot.pool,
            self._snapshot_ms,
            snapshot_mark(snapshot),
            snapshot.model_dump_json(exclude_none=True, exclude={"published_ms"})[:-1],
            detail.model_dump_json(exclude_none=True) if detail else "",
        )

    def register(self, model: ModelInfo) -> None:
        text = model.model_dump_json(exclude_none=True)
        self._call("register", model.name, model.storage or "", text)

    def forget(self, model: str, storage: str) -> bool:
        return bool(self._call("forget", model, storage))

    def leave(self, pool: str) -> None:
        self._call("leave", pool)

    def status(self, job_id: str) -> JobStatus | None:
        return record.read_status(self._client, job_id)

    def result(self, job_id: str) -> JobResult | None:
        return record.read_result(self._client, job_id)

    def decisions(self, job_id: str) -> list[Decision]:
        return record.read_decisions(self._client, job_id)

    def waited(self, job_id: str) -> Waited | None:
        return record.read_waited(self._client, job_id)

    def jobs(self, limit: int) -> list[JobStatus]:
        found = self._call("jobs", limit, *record.STATUS_FIELDS)
        shown = [record.status_of(job, values, decision) for job, decision, values in found]
        return [status for status in shown if status]


def _flat(groups: Iterable[list[Argument]]) -> list[Argument]:
    return [argument for group in groups for argument in group]


def _error_arguments(error: JobError) -> tuple[str, str, str]:
    return error.code, error.message, error.model_dump_json(exclude_none=True)
