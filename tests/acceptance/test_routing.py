"""Routing follows the metrics: real pools with echo engines at described rates. A slow cpu engine
in two pools, of which the test says how short their memory is, and a fast cuda one with two
slots."""

import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from noidle import keys
from noidle.handle import Job
from noidle.results import JobState
from noidle.snapshot import PoolState, Pressure
from tests.acceptance.described import program
from tests.acceptance.fleet import Fleet, generate, state
from tests.integration.ops.commands import wait_for
from tests.integration.workers.processes import ROOT, WorkerProcess
from tests.valkey_process import ValkeyProcess

CPU, CPU_1, CUDA = "cpu@here", "cpu.1@here", "cuda@here"
SLOTS = {CPU: 4, CPU_1: 4, CUDA: 2}
SHORT = {"max_tokens": 4}
# on cuda: longer than a short job takes on cpu, and no longer than a test
MINUTES = {"max_tokens": 20_000}
PATIENCE_S = 60.0


class Told(Fleet):
    """Its pools believe what they are told."""

    def __init__(self, folder: Path, url: str) -> None:
        super().__init__(folder, url)
        self._files = folder
        self.workers: dict[str, WorkerProcess] = {}

    def begin_all(self) -> None:
        self.router()
        for pool in SLOTS:
            self.begin(pool)
        self.wait_ready(*SLOTS)
        self.wait_routed()

    def begin(self, pool: str) -> None:
        engine, _, index = pool.partition("@")[0].partition(".")
        self.press(pool, Pressure.OK)
        step_s = 0.001 if engine == "cuda" else 0.02
        rate = 100_000 if engine == "cuda" else 1_000
        counting = program(
            self._files,
            pool,
            module="tests.acceptance.counting_echo",
            step_s=step_s,
            step_s_per_sequence=0.0,
            prefill_tokens_per_s=rate,
            count=str(self.count(pool)),
        )
        self.workers[pool] = self.told_pool(
            engine,
            int(index or 0),
            TOLD_PRESSURE=str(self._pressure(pool)),
            TOLD_PROGRAM=str(counting),
            NOIDLE_SLOTS=str(SLOTS[pool]),
            NOIDLE_GRACE_S="60",
        )

    def press(self, pool: str, pressure: Pressure) -> None:
        self._pressure(pool).write_text(pressure)

    def _pressure(self, pool: str) -> Path:
        return self._files / f"{pool}.pressure"

    def count(self, pool: str) -> Path:
        """The most runs that its engine ever had in one step."""
        return self._files / f"{pool}.count"

    def wait_seen(self, pool: str, name: str, value: object) -> None:
        def seen() -> bool:
            found = self.snapshots().get(pool)
            return found is not None and getattr(found, name) == value

        wait_for(seen, f"{pool} with {name} {value}")
        self.wait_routed()

    @contextmanager
    def busy(self, count: int, **fields: Any) -> Iterator[list[Job]]:
        """Jobs that run for minutes."""
        jobs = [self.send(**{**MINUTES, **fields}) for _ in range(count)]
        self.wait_moving(*jobs)
        try:
            yield jobs
        finally:
            for job in jobs:
                job.cancel()
                job.outcome(timeout_s=PATIENCE_S)

    def pools_of(self, count: int, **fields: Any) -> set[str | None]:
        """Where so many jobs run that come at once."""
        jobs = self.client.submit_many(generate(**SHORT, **fields) for _ in range(count))
        return {job.result(timeout_s=PATIENCE_S).pool for job in jobs}


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Told]:
    valkey = ValkeyProcess(tmp_path_factory.mktemp("valkey"))
    valkey.start()
    fleet = Told(tmp_path_factory.mktemp("fleet"), valkey.url)
    try:
        fleet.begin_all()
        yield fleet
    finally:
        fleet.close()
        valkey.stop()


def test_a_short_job_goes_to_the_cpu_when_the_accelerator_is_full(fleet: Told):
    assert fleet.send(**SHORT).result(timeout_s=PATIENCE_S).pool == CUDA
    with fleet.busy(2) as jobs:
        assert {job.status().pool for job in jobs} == {CUDA}
        short = fleet.send(**SHORT)
        assert short.result(timeout_s=PATIENCE_S).engine == "cpu"
        chosen = short.explain().decisions[0]
        verdicts = {one.pool: one for one in chosen.verdicts}
        assert verdicts[CUDA].outcome == "slower"
        assert (verdicts[CUDA].finish_s or 0) > (verdicts[chosen.pool or ""].finish_s or 0)


def test_a_long_job_waits_for_the_accelerator_when_that_is_faster(fleet: Told):
    with fleet.busy(2, max_tokens=8_000) as jobs:
        long = fleet.send(max_tokens=8_000)
        waits = wait_for(lambda: long.explain().decisions, "a decision")[0]
        verdicts = {one.pool: one for one in waits.verdicts}
        assert (waits.action, waits.pool, verdicts[CUDA].outcome) == ("wait", CUDA, "wait")
        assert (verdicts[CPU].finish_s or 0) > (verdicts[CUDA].finish_s or 0)
        # and it is not in the way of a short one
        assert fleet.send(**SHORT).result(timeout_s=PATIENCE_S).engine == "cpu"
        assert state(long) is JobState.HELD
        jobs[0].cancel()
        fleet.wait_moving(long)
        assert long.status().pool == CUDA
        long.cancel()


def test_a_pool_under_hard_memory_pressure_gets_nothing(fleet: Told):
    assert fleet.pools_of(20, engine="cpu") == {CPU, CPU_1}
    fleet.press(CPU_1, Pressure.HARD)
    fleet.wait_seen(CPU_1, "pressure", Pressure.HARD)
    try:
        assert fleet.pools_of(20, engine="cpu") == {CPU}
        fleet.press(CPU, Pressure.HARD)
        fleet.wait_seen(CPU, "pressure", Pressure.HARD)
        waits = fleet.send(engine="cpu")
        decision = wait_for(lambda: waits.explain().decisions, "a decision")[0]
        reasons = [one.reason for one in decision.verdicts if one.pool in (CPU, CPU_1)]
        assert len([one for one in reasons if "under hard memory pressure" in one]) == 2
        assert state(waits) is JobState.HELD
        assert fleet.send(**SHORT).result(timeout_s=PATIENCE_S).pool == CUDA
    finally:
        for pool in (CPU, CPU_1):
            fleet.press(pool, Pressure.OK)
    assert waits.result(timeout_s=PATIENCE_S).engine == "cpu"


def test_a_draining_pool_gets_nothing_and_ends_what_it_has(fleet: Told):
    fleet.wait_seen(CPU_1, "pressure", Pressure.OK)
    job = fleet.send(engine="cpu", max_tokens=200)
    fleet.wait_moving(job)
    other = next(pool for pool in (CPU, CPU_1) if pool != job.status().pool)
    draining = job.status().pool
    assert draining in (CPU, CPU_1)
    fleet.workers[draining].signal(signal.SIGTERM)
    fleet.wait_seen(draining, "state", PoolState.DRAINING)
    assert fleet.pools_of(20, engine="cpu") == {other}
    result = job.result(timeout_s=PATIENCE_S)
    assert (result.pool, result.attempt) == (draining, 1)
    assert fleet.workers[draining].wait() == 0
    fleet.begin(draining)
    fleet.wait_ready(draining)
    fleet.wait_routed()
    assert fleet.pools_of(20, engine="cpu") == {CPU, CPU_1}


def test_a_pool_that_says_nothing_gets_nothing(fleet: Told):
    """Its process is stopped: it lives, and neither works nor reports."""
    fleet.workers[CPU_1].signal(signal.SIGSTOP)
    try:
        wait_for(lambda: CPU_1 not in fleet.snapshots(), "a stale snapshot")
        fleet.wait_routed()
        assert fleet.pools_of(20, engine="cpu") == {CPU}
    finally:
        fleet.workers[CPU_1].signal(signal.SIGCONT)
    fleet.wait_ready(CPU_1)
    fleet.wait_routed()
    assert fleet.pools_of(20, engine="cpu") == {CPU, CPU_1}


class Watch:
    """Looks at the leases of every pool, about a thousand times a second."""

    def __init__(self, fleet: Told) -> None:
        self.most = dict.fromkeys(SLOTS, 0)
        self.looks = 0
        self._fleet = fleet
        self._over = threading.Event()

    def run(self) -> None:
        while not self._over.wait(0.001):
            with self._fleet.server.pipeline() as pipe:
                for pool in SLOTS:
                    pipe.hlen(keys.pool_leases(pool))
                found = pipe.execute()
            self.most = {
                pool: max(self.most[pool], count) for pool, count in zip(SLOTS, found, strict=True)
            }
            self.looks += 1

    @contextmanager
    def going(self) -> Iterator[None]:
        with ThreadPoolExecutor(1) as threads:
            watching = threads.submit(self.run)
            yield
            self._over.set()
            watching.result()


def test_no_pool_ever_has_more_jobs_than_slots(fleet: Told):
    """500 jobs from 4 producers at once; counted on the board, and in each engine's steps."""
    producers = [
        subprocess.Popen(
            [sys.executable, "-m", "tests.acceptance.producer", fleet.url, "125"],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        for _ in range(4)
    ]
    for each in producers:
        assert each.stdout is not None
        assert each.stdout.readline() == "ready\n"
    watch = Watch(fleet)
    with watch.going():
        for each in producers:
            assert each.stdin is not None
            each.stdin.write("go\n")
            each.stdin.flush()
        ids = [line for each in producers for line in each.communicate(timeout=60)[0].split()]
        assert len(set(ids)) == 500
        wait_for(lambda: fleet.census.ended(ids) == 500, "500 ends")
    assert watch.looks > 100
    assert watch.most == SLOTS
    assert {pool: int(fleet.count(pool).read_text()) for pool in SLOTS} == SLOTS
    assert fleet.census.attempts(ids) == {1: 500}
    fleet.census.wait_settled(SLOTS)
