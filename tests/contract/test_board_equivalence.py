"""Both boards under the same random calls: whatever happens in one happens in the other."""

import contextlib
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from noidle.errors import InvalidJob
from noidle.jobs import JobClass
from noidle.results import JobError, JobResult, JobState, StreamEvent, Waited
from noidle.snapshot import ModelInfo, PoolState, Pressure
from routing.board import Checkpoint, Claim, StepReport
from routing.envelope import Envelope
from routing.running import Preemption
from tests.contract.board_world import (
    Cluster,
    MemoryWorld,
    RedisWorld,
    decision,
    generate,
    snapshot,
    train,
)
from tests.valkey_process import ValkeyProcess

JOBS = ("a", "b", "t")
POOLS = {"1": "cpu@here", "2": "gpu@there"}
jobs = st.sampled_from(JOBS)
# few tokens, each of one pool: a random call often meets the run it is about
tokens = st.sampled_from(tuple(POOLS))
pools = st.sampled_from(tuple(POOLS.values()))
limits = st.sampled_from((None, None, ("expires_s", 500.0), ("deadline_s", 500.0)))

calls = st.one_of(
    st.tuples(st.just("accept"), jobs, st.sampled_from("xxxy"), limits),
    st.tuples(st.just("refuse"), jobs),
    st.tuples(st.just("cancel"), jobs),
    st.tuples(st.just("fail"), jobs),
    st.tuples(st.just("note"), jobs, st.sampled_from(("full", "kv"))),
    st.tuples(st.just("start"), jobs, tokens),
    st.tuples(st.just("start"), jobs, tokens),
    st.tuples(st.just("start"), jobs, tokens),
    st.tuples(st.just("lease"), jobs, tokens, st.sampled_from((0, 60)), st.booleans()),
    st.tuples(st.just("claim"), jobs, tokens, pools),
    st.tuples(st.just("report"), jobs, tokens, st.sampled_from(("", "é "))),
    st.tuples(st.just("progress"), jobs, tokens, st.integers(1, 9)),
    st.tuples(st.just("finish"), jobs, tokens, st.sampled_from(("done", "failed", "cancelled"))),
    st.tuples(st.just("yield_slice"), tokens, st.integers(1, 9)),
    st.tuples(st.just("back"), jobs, tokens, st.booleans()),
    st.tuples(st.just("back"), jobs, tokens, st.just(True)),
    st.tuples(st.just("preempt"), jobs, tokens, jobs, st.booleans()),
    st.tuples(st.just("preempt"), st.just("t"), tokens, st.just(None), st.booleans()),
    st.tuples(st.just("unclaimed"), pools),
    st.tuples(st.just("publish"), pools, st.sampled_from(("ready", "draining", "hard"))),
    st.tuples(st.just("time"), st.sampled_from((350.0, 350.0, 350.0, 2000.0))),
    st.tuples(st.just("after")),
    st.tuples(st.just("forget")),
)


class Driver:
    """Makes one call on one board and says what can be seen of it."""

    def __init__(self, world: MemoryWorld | RedisWorld) -> None:
        self.cluster = Cluster(world, world.board(crash_limit=2))
        self.refresh()

    def refresh(self) -> None:
        for pool in POOLS.values():
            self.cluster.board.publish(snapshot(pool, slots=2))
        self.cluster.role = self.cluster.take_role()

    def call(self, name: str, *arguments: Any) -> object:
        return getattr(self, f"do_{name}")(*arguments)

    def do_accept(self, job: str, content: str, limit: tuple[str, float] | None) -> object:
        job_class = JobClass.INTERACTIVE if job == "a" else JobClass.BATCH
        made = train(job, text=content) if job == "t" else generate(job, prompt=content)
        made = made.model_copy(update={"job_class": job_class})
        if limit is not None:
            made = made.model_copy(update=dict([limit]))
        around = Envelope(link=[{"task": "next"}]) if job == "b" else None
        with contextlib.suppress(InvalidJob):
            return self.cluster.board.accept(made, around)
        return "invalid"

    def do_refuse(self, job: str) -> None:
        self.cluster.board.refuse(job, None, JobError(code="invalid", message="no"))

    def do_cancel(self, job: str) -> object:
        return self.cluster.board.cancel(job)

    def do_fail(self, job: str) -> object:
        return self.cluster.board.fail(job, JobError(code="unplaceable", message="no"))

    def do_note(self, job: str, reason: str) -> None:
        told = decision(job, "wait", reason).model_copy(update={"cause": reason})
        self.cluster.board.note([told])

    def do_lease(self, job: str, token: str, kv: int, alone: bool) -> object:
        fields = {"slots": 2, "kv_tokens": kv, "kv_tokens_total": 100, "alone": alone}
        return self.cluster.lease(job, token, pool=POOLS[token], **fields)

    def do_claim(self, job: str, token: str, pool: str) -> object:
        claim = self.cluster.board.claim(job, token, pool, 1)
        if not isinstance(claim, Claim):
            return claim
        return claim.job, claim.attempt, claim.text, claim.tokens, claim.checkpoint, claim.revision

    def do_start(self, job: str, token: str) -> object:
        return self.do_lease(job, token, 0, False), self.do_claim(job, token, POOLS[token])

    def do_report(self, job: str, token: str, text: str) -> object:
        step = StepReport(job=job, token=token, text=text, tokens=(1,) if text else ())
        return self.cluster.board.report(POOLS[token], [step])

    def do_progress(self, job: str, token: str, number: int) -> object:
        step = StepReport(job=job, token=token, step=number, goal=9, loss=1.5)
        return self.cluster.board.report(POOLS[token], [step])

    def do_finish(self, job: str, token: str, state: str) -> object:
        return self.cluster.finish(job, token, state=JobState(state))

    def do_yield_slice(self, token: str, number: int) -> object:
        checkpoint = Checkpoint(name=f"step-{number}", storage="disk", step=number)
        model = ModelInfo(name="mini", revision=f"step-{number}", storage="disk")
        return self.cluster.board.yield_slice("t", token, checkpoint, model, 1.5)

    def do_back(self, job: str, token: str, crashed: bool) -> object:
        return self.cluster.board.hand_back(job, token, crashed=crashed)

    def do_preempt(self, job: str, token: str, other: str | None, free: bool) -> object:
        wish = Preemption(
            job=job,
            token=token,
            for_job=other,
            free_memory=free,
            decision=decision(job, "preempt", f"for {other}"),
        )
        return self.cluster.board.preempt(self.cluster.role, [wish])

    def do_unclaimed(self, pool: str) -> object:
        return sorted(self.cluster.board.release_unclaimed(pool))

    def do_publish(self, pool: str, how: str) -> None:
        state = PoolState.DRAINING if how == "draining" else PoolState.READY
        pressure = Pressure.HARD if how == "hard" else Pressure.OK
        self.cluster.board.publish(snapshot(pool, slots=2, state=state, pressure=pressure))

    def do_time(self, seconds: float) -> object:
        self.cluster.world.pass_time(seconds)
        self.refresh()
        return sorted(self.cluster.board.reap(self.cluster.role))

    def do_forget(self) -> object:
        return self.cluster.board.forget("mini", "disk")

    def do_after(self) -> object:
        taken = self.cluster.board.take_after()
        if taken is None:
            return None
        self.cluster.board.sent(taken[0].id)
        return taken[0].id, taken[0].state, taken[1]

    def seen(self) -> list[object]:
        """Everything that anybody can see, without what only the clock decides."""
        board = self.cluster.board
        held = [
            (job.id, job.max_tokens, job.storage, job.alone, job.kind) for job in board.held(32)
        ]
        jobs = [board.status(job) for job in JOBS]
        return [
            held,
            board.loads(),
            self.running(),
            sorted(board.models().items()),
            sorted(pool.pool for pool in board.pools()),
            [status and status.model_copy(update={"accepted_ms": 0}) for status in jobs],
            [_timeless(board.result(job)) for job in JOBS],
            [board.decisions(job) for job in JOBS],
            _roughly(board.waited("a")),
            [self.events(job) for job in JOBS],
            sorted(status.id for status in board.jobs(10)),
        ]

    def running(self) -> list[object]:
        found = self.cluster.board.running(list(POOLS.values()))
        seen = [(one.id, replace(one, claimed_ms=None), one.claimed_ms is None) for one in found]
        return sorted(seen, key=lambda entry: entry[0])

    def events(self, job: str) -> list[StreamEvent]:
        return self.cluster.world.events(job)


def _roughly(waited: Waited | None) -> object:
    """To ten seconds: time passes in hundreds of them."""
    if waited is None:
        return None
    causes = {cause: round(span_s, -1) for cause, span_s in waited.causes.items()}
    return round(waited.held_s, -1), causes


def _timeless(result: JobResult | None) -> object:
    if result is None:
        return None
    measured = {name for name, value in result.times if value is not None}
    return result.model_copy(update={"times": None, "seed": None}), measured


@pytest.fixture(scope="module")
def server(valkey_server: ValkeyProcess) -> Iterator[RedisWorld]:
    world = RedisWorld(valkey_server.url)
    yield world
    world.client.flushall()


@settings(
    max_examples=40,
    deadline=None,
    derandomize=True,
    database=None,
    phases=(Phase.explicit, Phase.generate, Phase.shrink),
    suppress_health_check=list(HealthCheck),
)
@given(st.lists(calls, min_size=20, max_size=60))
def test_both_boards_do_the_same(server: RedisWorld, script: list[tuple[Any, ...]]) -> None:
    server.client.flushall()
    memory, redis = Driver(MemoryWorld()), Driver(server)
    for number, call in enumerate(script):
        assert redis.call(*call) == memory.call(*call), (number, call)
        assert redis.seen() == memory.seen(), (number, call)
