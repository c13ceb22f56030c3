"""Nothing is lost: each process of a cluster dies in the middle of 200 jobs, and every job ends
once, with the tokens of an undisturbed run."""

import os
import signal
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest
import redis

from noidle import Client
from noidle.connection import connect
from noidle.handle import Job
from noidle.snapshot import PoolState
from routing.redis_board import RedisBoard
from tests.acceptance.census import Answer, Census, said
from tests.acceptance.described import program
from tests.integration.ops.commands import wait_for
from tests.integration.ops.local import Local
from tests.valkey_process import ValkeyProcess

JOBS = 200
MIDDLE = 60
LATE = 20
READ_EVERY = 13
POOLS = ("cpu@box", "cuda@box")
PATIENCE_S = 90.0
RECOVERY_PATIENCE_S = 30.0
Report = Callable[[str], None]


class Site:
    """A supervised cluster around a server that the test may kill."""

    def __init__(self, local: Local, valkey: ValkeyProcess, server: redis.Redis) -> None:
        self.local = local
        self.valkey = valkey
        self.server = server
        self.board = RedisBoard(server)
        self.census = Census(server)

    def engine_pid(self, pool: str) -> int:
        [detail] = [one for one in self.board.details() if one.snapshot.pool == pool]
        return next(one.pid for one in detail.processes if one.name == "engine")

    def wait_whole(self) -> None:
        """Everything that died is back, and nothing of the jobs is left."""
        wait_for(lambda: {one.pool for one in self.board.pools() if ready(one)} == {*POOLS}, "pools")
        self.census.wait_settled(POOLS)


def ready(pool: Any) -> bool:
    return pool.state is PoolState.READY


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("kills")
    valkey, local = ValkeyProcess(tmp_path_factory.mktemp("valkey")), Local(folder)
    valkey.start()
    slow = program(folder, "slow", step_s=0.012, step_s_per_sequence=0.0003)
    fast = program(folder, "fast", step_s=0.008, step_s_per_sequence=0.0002)
    try:
        local.up(
            *("--engines", "cpu,cuda", "--stand-in", "--slots", "16", "--no-flower"),
            *("--program", f"cpu={slow}", "--program", f"cuda={fast}"),
            url=valkey.url,
        )
        with connect(valkey.url) as server:
            yield Site(local, valkey, server)
    finally:
        local.close()
        valkey.stop()


@pytest.fixture(scope="module")
def undisturbed(site: Site) -> list[Answer]:
    """What each of the jobs says when nothing happens to it."""
    with Client(site.valkey.url) as client:
        sent = client.submit_many(job(number) for number in range(JOBS))
        return [Answer.of(one.result(timeout_s=PATIENCE_S)) for one in sent]


def job(number: int) -> dict[str, Any]:
    return {
        "kind": "generate",
        "model": "echo",
        "prompt": f"nothing is lost, not even number {number}",
        "max_tokens": 40 + number % 7 * 10,
        "seed": number,
    }


class Round:
    """The jobs once more, some of their streams being read from the start."""

    def __init__(self, site: Site, client: Client, threads: ThreadPoolExecutor) -> None:
        self._client = client
        self._census = site.census
        self._threads = threads
        self.jobs: list[Job] = []
        self.readers: dict[int, Future[Answer]] = {}

    def send(self, numbers: Sequence[int]) -> None:
        fresh = self._client.submit_many(job(number) for number in numbers)
        for number, one in zip(numbers, fresh, strict=True):
            if number % READ_EVERY == 0:
                self.readers[number] = self._threads.submit(read, one)
        self.jobs += fresh

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.jobs]

    def ended(self) -> int:
        return self._census.ended(self.ids)

    def wait_more(self, than: int) -> int:
        """Until more have ended; how many."""
        wait_for(lambda: self.ended() > than, f"more than {than} ended jobs", PATIENCE_S)
        return self.ended()

    def wait_middle(self) -> None:
        assert self.wait_more(MIDDLE) < len(self.jobs) - LATE, "too fast to be hurt in the middle"


def read(one: Job) -> Answer:
    return said(one.events(timeout_s=PATIENCE_S))


def kill_pool(site: Site, _: Round) -> None:
    site.local.restarted("cuda", site.local.kill("cuda"))


def kill_engine(site: Site, _: Round) -> None:
    os.kill(site.engine_pid("cuda@box"), signal.SIGKILL)


def kill_router(site: Site, _: Round) -> None:
    site.local.restarted("router", site.local.kill("router"))


def cut_connections(site: Site, jobs: Round) -> None:
    """Again each time that something got done in spite of the last cut."""
    ended = cuts = 0
    while ended < len(jobs.jobs):
        for kind in ("normal", "pubsub"):
            site.server.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        cuts += 1
        ended = jobs.wait_more(ended)
    assert cuts > 5


def kill_valkey(site: Site, _: Round) -> None:
    site.valkey.kill()
    site.valkey.start()


def cut_power(site: Site, jobs: Round) -> None:
    """Redis comes back without what it did last: ends, words, and jobs that were just sent."""
    kept_bytes = site.valkey.log_bytes()
    jobs.wait_more(jobs.ended() + LATE)
    jobs.send(range(JOBS - LATE, JOBS))
    site.valkey.kill()
    site.valkey.cut_log(kept_bytes)
    site.valkey.start()
    # whoever asks for a lost job sends it again
    assert not [one for one in jobs.jobs[-LATE:] if one.status().state.final]


# the server's first: it reads all that happened before when it comes back
@pytest.mark.parametrize(
    "blow", [kill_valkey, cut_power, kill_pool, kill_engine, kill_router, cut_connections]
)
def test_every_job_ends_once_with_its_tokens(
    site: Site, undisturbed: list[Answer], blow: Callable[[Site, Round], None], report: Report
):
    with Client(site.valkey.url) as client, ThreadPoolExecutor(JOBS // READ_EVERY + 1) as threads:
        jobs = Round(site, client, threads)
        jobs.send(range(JOBS - LATE if blow is cut_power else JOBS))
        jobs.wait_middle()
        running = site.census.running(jobs.ids)
        assert running
        blow(site, jobs)
        since_ms = site.board.now_ms()
        wait_for(lambda: site.census.went_on(running, since_ms), "recovery", RECOVERY_PATIENCE_S)
        results = [one.outcome(timeout_s=PATIENCE_S) for one in jobs.jobs]
        assert [Answer.of(one) for one in results] == undisturbed
        for number, reader in jobs.readers.items():
            assert reader.result() == undisturbed[number]
        site.wait_whole()
        site.census.check(dict(zip(jobs.ids, undisturbed, strict=True)))
        report(
            f"{blow.__name__}: a stream fell silent for {site.census.silence_s(jobs.ids):.1f} s at"
            f" most, no job began for {site.census.pause_s(jobs.ids):.1f} s at most, attempts"
            f" {dict(sorted(site.census.attempts(jobs.ids).items()))}"
        )
