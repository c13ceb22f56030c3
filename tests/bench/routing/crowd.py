"""Many pools, and many jobs that wait, in virtual time. Owns what pools and producers do between
two looks: snapshots are published, runs end or make room, jobs come; knows nothing of the pump.

The board is the one in memory, but snapshots are read as the one in Redis reads them: from their
text, where that is another than before."""

import heapq
import random
from collections.abc import Iterator
from typing import NamedTuple

from noidle.jobs import Generate, parse_job
from noidle.results import JobResult, JobState
from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.board import Claim, Lease, PumpRole
from routing.ended import Run
from routing.memory_board import MemoryBoard
from routing.running import Preemption
from routing.simulation.described import Described
from routing.simulation.request import EPOCH_MS, class_of, label_of

MODELS = 4
"""Each pool serves one of so many."""
CONTEXT = 32_768
BYTES_PER_TOKEN = 4
BEGINNINGS = 1_000
PUBLISH_S = 1.0
"""Each pool publishes so often."""
LONG_S = 1e6
"""So long leases last here: nobody renews them."""


class _End(NamedTuple):
    """When a run ends, and what began it."""

    at_s: float
    first_s: float
    leased_s: float
    token: str
    job: str
    pool: str


class Watched(MemoryBoard):
    """Remembers what was granted, and shows snapshots as they were published last."""

    def __init__(self, crowd: "Crowd") -> None:
        limits = {"lease_s": LONG_S, "role_s": LONG_S, "snapshot_s": LONG_S}
        super().__init__(clock=crowd.clock, held_limit=1_000_000, **limits)
        self._crowd = crowd
        self._known: dict[str, PoolSnapshot] = {}
        self.granted: list[Lease] = []
        self.asked_to_leave: list[Preemption] = []

    def lease(self, role: PumpRole, leases: list[Lease]) -> list[bool]:
        granted = super().lease(role, leases)
        self.granted += [one for one, yes in zip(leases, granted, strict=True) if yes]
        return granted

    def preempt(self, role: PumpRole, wishes: list[Preemption]) -> list[bool]:
        granted = super().preempt(role, wishes)
        self.asked_to_leave += [one for one, yes in zip(wishes, granted, strict=True) if yes]
        return granted

    def pools(self) -> list[PoolSnapshot]:
        known = self._known
        self._known = {
            text: known.get(text) or PoolSnapshot.model_validate_json(text)
            for text in self._crowd.texts
        }
        return list(self._known.values())

    def runs(self) -> list[Run]:
        """With the tokens that the runs would have made: nobody writes them."""
        super().runs()
        return self._crowd.take_ended()


class Crowd:
    """Something happens in it whenever it is told that time passed."""

    def __init__(self, described: Described, *, held: int, seed: int = 0) -> None:
        self._now_s = EPOCH_MS / 1000
        self._pools = {one.pool: one for one in described.pools}
        self._snapshots = list(_snapshots(described))
        self.texts = [one.model_dump_json() for one in self._snapshots]
        self._held = held
        self._dice = random.Random(seed)
        self._number = 0
        self._jobs: dict[str, Generate] = {}
        self._tokens: dict[str, str] = {}
        self._ends: list[_End] = []
        self._ended: list[Run] = []
        self._due = 0.0
        self.slots = sum(pool.slots for pool in described.pools)
        self.board = Watched(self)
        for number in range(MODELS):
            self.board.register(_model(number))
        for snapshot in self._snapshots:
            self.board.publish(snapshot)
        self._come()

    @property
    def taken(self) -> int:
        return len(self._tokens)

    def clock(self) -> float:
        """Seconds of virtual time."""
        return self._now_s

    def pass_time(self, seconds: float) -> None:
        self._begin(self.board.granted)
        self._leave(self.board.asked_to_leave)
        self._now_s += seconds
        self._publish(seconds)
        while self._ends and self._ends[0].at_s <= self._now_s:
            self._end(heapq.heappop(self._ends))
        self._come()

    def take_ended(self) -> list[Run]:
        ended, self._ended = self._ended, []
        return ended

    def _begin(self, granted: list[Lease]) -> None:
        for lease in granted:
            claim = self.board.claim(lease.job, lease.token, lease.pool, 1)
            if isinstance(claim, Claim):
                self._tokens[lease.job] = lease.token
                heapq.heappush(self._ends, self._end_of(lease))
        granted.clear()

    def _end_of(self, lease: Lease) -> _End:
        pool, job = self._pools[lease.pool], self._jobs[lease.job]
        prompt = 1 + len(job.prompt or "") // BYTES_PER_TOKEN
        work_s = pool.work_s(prompt, job.max_tokens, pool.slots)
        first_s = self._now_s + prompt / pool.prefill_tokens_per_s
        return _End(self._now_s + work_s, first_s, self._now_s, lease.token, job.id, lease.pool)

    def _leave(self, asked: list[Preemption]) -> None:
        for one in asked:
            token = self._tokens.pop(one.job, None)
            if token is not None:
                self.board.hand_back(one.job, token)
        asked.clear()

    def _end(self, end: _End) -> None:
        if self._tokens.get(end.job) != end.token:
            return
        del self._tokens[end.job]
        job = self._jobs.pop(end.job)
        self.board.finish(job.id, end.token, _result(job))
        self._ended.append(
            Run(
                job=job.id,
                kind=job.kind,
                model=job.model,
                label=job.label,
                leased_ms=int(end.leased_s * 1000),
                first_ms=int(end.first_s * 1000),
                ended_ms=int(end.at_s * 1000),
                tokens=job.max_tokens,
                max_tokens=job.max_tokens,
            )
        )

    def _publish(self, seconds: float) -> None:
        """In turn."""
        count = len(self.texts)
        first = int(self._due)
        self._due += seconds / PUBLISH_S * count
        for number in range(first, int(self._due)):
            place = number % count
            dated = {"published_ms": int(self._now_s * 1000)}
            self.texts[place] = self._snapshots[place].model_copy(update=dated).model_dump_json()

    def _come(self) -> None:
        while len(self._jobs) - self.taken < self._held:
            job = self._job(self._number)
            self._number += 1
            self._jobs[job.id] = job
            self.board.accept(job)

    def _job(self, number: int) -> Generate:
        # answers so long that the pools ask for no more jobs than one pump can lease
        tokens = min(max(int(self._dice.lognormvariate(8.0, 0.5)), 16), CONTEXT // 4)
        prompt = min(max(int(self._dice.lognormvariate(5.5, 0.8)), 1), CONTEXT // 4)
        job = parse_job(
            {
                "kind": "generate",
                "id": f"job-{number}",
                "model": _model(number % MODELS).name,
                "prompt": _prompt(number, prompt),
                "max_tokens": tokens,
                "class": class_of(number).value,
                "label": label_of(number),
            }
        )
        assert isinstance(job, Generate)
        return job


def _snapshots(described: Described) -> Iterator[PoolSnapshot]:
    for number, pool in enumerate(described.pools):
        model = _model(number % MODELS).name
        yield pool.snapshot(described.weight_bytes, loaded=True).model_copy(
            update={"models": (model,), "loaded": (model,), "published_ms": EPOCH_MS}
        )


def _prompt(number: int, tokens: int) -> str:
    """One of so many beginnings, which some pools have read before."""
    return f"{number % BEGINNINGS:08d}" * (BYTES_PER_TOKEN * tokens // 8 + 1)


def _model(number: int) -> ModelInfo:
    return ModelInfo(
        name=f"model-{number}",
        revision="described",
        storage="described",
        context=CONTEXT,
        weight_bytes=3_000_000_000,
        bytes_per_token=BYTES_PER_TOKEN,
    )


def _result(job: Generate) -> JobResult:
    return JobResult(id=job.id, kind=job.kind, state=JobState.DONE, text="a", tokens=(1,))
