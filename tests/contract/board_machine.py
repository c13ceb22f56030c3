"""Producers, a pump, pools moved by hand, and whatever may go wrong between them, on one board.
Written for hypothesis, which finds the order; see watched_board for what must hold."""

import random
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from noidle.jobs import JobClass
from noidle.results import JobResult, JobState
from noidle.snapshot import ModelInfo
from routing.board import Checkpoint, Claim, Lease, StepReport, Verdict
from routing.bounds import PREEMPTIONS_IN_A_ROW
from routing.running import Preemption, RunningJob
from tests.contract.board_world import decision, generate, train
from tests.contract.watched_board import DEADLINE_S, SLOTS, Seen, WatchedCluster

LOOK_S = 0.3
"""Between two looks, so that the second one reads the snapshots again."""
ROUNDS = 400
"""Far more looks than any cluster here needs to end all its jobs."""
choice = st.integers(0, 63)


def wish_of(run: RunningJob, other: str, *, free: bool = False) -> Preemption:
    return Preemption(
        job=run.id,
        token=run.token,
        for_job=other,
        free_memory=free,
        decision=decision(run.id, "preempt", "makes room"),
    )


class BoardMachine(WatchedCluster):
    """Three pools, one pump at a time, jobs of every class, faults at any moment."""

    # 1. Producers
    @rule(
        job_class=st.sampled_from(JobClass),
        max_tokens=st.sampled_from((4, 40, 100)),
        alike=st.integers(1, 5),
        due=st.booleans(),
    )
    def generates(self, job_class: JobClass, max_tokens: int, alike: int, due: bool) -> None:
        for _ in range(alike):
            fields = {"class": job_class, "max_tokens": max_tokens, "prompt": "x"}
            fields |= {"deadline_s": DEADLINE_S} if due else {}
            self.accept(generate(f"g{len(self.jobs)}", **fields))

    @rule(job_class=st.sampled_from((JobClass.BATCH, JobClass.BACKGROUND)))
    def trains(self, job_class: JobClass) -> None:
        self.accept(train(f"t{len(self.jobs)}", **{"class": job_class}))

    def accept(self, job: Any) -> None:
        assert self.board.accept(job)
        assert not self.board.accept(job)
        self.jobs[job.id] = Seen(at_s=self.passed_s, due=job.deadline_s is not None)

    @precondition(lambda self: self.jobs)
    @rule(pick=choice)
    def cancels(self, pick: int) -> None:
        self.board.cancel(sorted(self.jobs)[pick % len(self.jobs)])

    # 2. Routers
    @rule()
    def looks(self) -> None:
        self.publish()
        self.clock_s += LOOK_S
        self.board.seen = []
        if self.pump.look() is not None:
            self.check_order(self.board.now_ms())
            self.take_note()

    @rule(seed=choice)
    def decides_blindly(self, seed: int) -> None:
        """A pump whose picture of the pools is as old as it may be: the board's limits hold."""
        self.looks()
        role = self.board.take_pump(f"router-{self.routers}")
        if role is not None:
            wishes = self.wishes()
            random.Random(seed).shuffle(wishes)
            self.board.lease(role, wishes)
            self.take_note()

    def wishes(self) -> list[Lease]:
        """All that waits, and some that does not, is to go to each pool, as former leases did."""
        jobs = [*(job.id for job in self.board.held(1000)), *list(self.latest)[-2:]]
        return [
            replace(former, job=job, token=self.tokens.randbytes(8).hex())
            for former in self.board.wishes.values()
            for job in jobs
        ]

    @precondition(lambda self: self.leases)
    @rule(high=choice, low=choice, free=st.booleans())
    def preempts(self, high: int, low: int, free: bool) -> None:
        """Whatever a pump asks for, only what is lower and not protected makes room."""
        role = self.board.take_pump(f"router-{self.routers}")
        running = self.board.running(list(SLOTS))
        if role is None or not running:
            return
        other = sorted(self.jobs)[high % len(self.jobs)]
        self.board.preempt(role, [wish_of(running[low % len(running)], other, free=free)])
        self.take_note()

    @precondition(lambda self: self.claimed)
    @rule(pick=choice)
    def preempts_again_and_again(self, pick: int) -> None:
        """For a job that stays held, since no pool can run it."""
        found = self.board.running(list(SLOTS))
        if not found:
            return
        run, urgent = found[pick % len(found)], f"g{len(self.jobs)}"
        self.accept(generate(urgent, engine="hybrid", **{"class": "interactive"}))
        for _ in range(PREEMPTIONS_IN_A_ROW + 1):
            self.preempts_and_starts_again(run.id, urgent)
        self.board.cancel(urgent)

    def preempts_and_starts_again(self, job: str, urgent: str) -> None:
        role = self.board.take_pump(f"router-{self.routers}")
        running = {one.id: one for one in self.board.running(list(SLOTS))}
        if role is None or job not in running:
            return
        self.board.preempt(role, [wish_of(running[job], urgent)])
        self.take_note()
        lease = self.latest[job]
        if lease.token in self.claimed and self.jobs[job].asked:
            self.board.hand_back(lease.job, lease.token)
            self.ended(lease)
        self.board.lease(role, [replace(lease, token=self.tokens.randbytes(8).hex())])
        self.take_note()
        self.claim(self.latest[job], lease.pool)

    @rule()
    def router_dies(self) -> None:
        """Another one takes over; what the former one still decides must not count."""
        role = self.board.take_pump(f"router-{self.routers}")
        if role is None:
            return
        self.board.give_up_pump(role)
        self.pump = self.new_pump()
        assert self.board.take_pump(f"router-{self.routers}")
        assert not any(self.cluster.board.lease(role, self.wishes()))
        self.looks()

    # 3. Pools
    @rule(pool=st.sampled_from(sorted(SLOTS)))
    def drains_or_comes_back(self, pool: str) -> None:
        self.draining ^= {pool}
        self.publish()
        if pool in self.draining:
            self.board.release_unclaimed(pool)

    @precondition(lambda self: self.leases)
    @rule(pick=choice, astray=st.booleans())
    def claims(self, pick: int, astray: bool) -> None:
        lease = self.pick(self.leases.values(), pick)
        pool = next(one for one in SLOTS if one != lease.pool) if astray else lease.pool
        self.claim(lease, pool)

    @rule()
    def claim_all(self) -> None:
        for lease in list(self.leases.values()):
            if lease.token not in self.claimed:
                self.claim(lease, lease.pool)

    def claim(self, lease: Lease, pool: str) -> None:
        claim = self.board.claim(lease.job, lease.token, pool, 1)
        if not isinstance(claim, Claim):
            return
        job = self.jobs[lease.job]
        assert pool == lease.pool
        assert lease.token not in self.claimed, "claimed twice under one token"
        assert claim.attempt == job.attempt + 1
        assert claim.tokens == tuple(job.tokens), "what was emitted is what the next one gets"
        job.attempt = claim.attempt
        job.asked = False
        self.claimed.append(lease.token)

    @precondition(lambda self: self.claimed)
    @rule(pick=choice, count=st.integers(0, 3))
    def moves(self, pick: int, count: int) -> None:
        self.report(self.pick(self.claimed_leases(), pick), count)

    def report(self, lease: Lease, count: int) -> None:
        job = self.jobs[lease.job]
        report = StepReport(job=lease.job, token=lease.token)
        if lease.job.startswith("t"):
            report = replace(report, step=job.step + count)
        else:
            new = tuple(range(len(job.tokens), len(job.tokens) + count))
            report = replace(report, tokens=new, text="x" * count)
        verdict = self.board.report(lease.pool, [report])[lease.job]
        if verdict is Verdict.LOST:
            self.ended(lease)
            return
        late = self.is_late(lease.job)
        assert (verdict is Verdict.OVERDUE) <= late
        assert (verdict in (Verdict.PAUSE, Verdict.FREE)) <= (job.asked and not late)
        assert (verdict is Verdict.GO_ON) <= (not job.asked and not late)
        job.tokens += report.tokens
        job.step = report.step or job.step

    @precondition(lambda self: self.claimed)
    @rule(pick=choice)
    def finishes(self, pick: int) -> None:
        self.finish(self.pick(self.claimed_leases(), pick))

    def finish(self, lease: Lease) -> None:
        self.board.finish(lease.job, lease.token, JobResult(id=lease.job, state=JobState.DONE))
        self.ended(lease)

    def ended(self, lease: Lease) -> None:
        if lease.token not in self.over:
            self.over.append(lease.token)

    @precondition(lambda self: self.leases)
    @rule(pick=choice, crashed=st.booleans())
    def hands_back(self, pick: int, crashed: bool) -> None:
        unclaimed = [one for one in self.leases.values() if one.token not in self.claimed]
        lease = self.pick([*self.claimed_leases(), *unclaimed[-2:]], pick)
        self.board.hand_back(lease.job, lease.token, crashed=crashed)
        self.ended(lease)

    @precondition(lambda self: any(job.startswith("t") for job in self.jobs))
    @rule(pick=choice)
    def yields(self, pick: int) -> None:
        trainings = [one for one in self.claimed_leases() if one.job.startswith("t")]
        if not trainings:
            return
        lease = self.pick(trainings, pick)
        step = self.jobs[lease.job].step
        checkpoint = Checkpoint(name=f"step-{step}", storage="disk", step=step)
        model = ModelInfo(name="mini", revision=f"step-{step}", storage="disk", context=1000)
        whole = lease.token not in self.over and not self.jobs[lease.job].asked
        if self.board.yield_slice(lease.job, lease.token, checkpoint, model, 1.5) and whole:
            self.jobs[lease.job].row = 0
        self.ended(lease)

    @rule(seconds=st.sampled_from((350.0, 2000.0)), moving=st.booleans())
    def time_passes(self, seconds: float, moving: bool) -> None:
        """Runs that go on moving report at its end, so that nobody takes their leases."""
        self.cluster.world.pass_time(seconds)
        self.clock_s += seconds
        self.passed_s += seconds
        # no picture is older than this, so what was measured before is not known any more
        for pool, wish in self.board.wishes.items():
            if wish.memory_free_bytes is not None:
                free_bytes = self.free_bytes()
                self.board.wishes[pool] = replace(wish, memory_free_bytes=free_bytes)
        for lease in self.claimed_leases() if moving else ():
            self.report(lease, 1)

    def teardown(self) -> None:
        """Whatever happened, once the faults are over every job comes to its end."""
        self.draining.clear()
        for _ in range(ROUNDS):
            if all(status.state.final for status in self.statuses().values()):
                self.every_promise_holds()
                self.nothing_has_changed_since()
                return
            self.looks()
            self.claim_all()
            for lease in self.claimed_leases():
                self.finish(lease)
        raise AssertionError(f"still not ended: {self.statuses()}")
