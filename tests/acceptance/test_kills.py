"""Nothing is lost: each process of a cluster dies in the middle of 200 jobs, and every job ends
once, with the tokens of an undisturbed run."""

import os
import signal
import uuid
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any, cast

import pytest
import redis
from celery import Celery

from noidle import Client, UnknownJob, keys
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
LEAST_LEFT = 20
# sent in the moment before something dies
LATE = range(180, JOBS)
TRAINED = 55
READ_EVERY = 13
READERS = JOBS // READ_EVERY + 2
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

    def on_pool(self, pool: str) -> list[str]:
        """The jobs leased to it."""
        return cast("list[str]", self.server.hkeys(keys.pool_leases(pool)))

    def attempt(self, job_id: str) -> int:
        status = self.board.status(job_id)
        return status.attempt if status else 0

    def wait_whole(self) -> None:
        """Everything that died is back, and nothing of the jobs is left."""
        wait_for(lambda: self._ready() == {*POOLS}, "both pools")
        self.census.wait_settled(POOLS)

    def _ready(self) -> set[str]:
        return {one.pool for one in self.board.pools() if one.state is PoolState.READY}


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
    """Of every kind; the model that one of them trains is of its round alone."""
    text = f"nothing is lost, not even number {number}"
    if number == TRAINED:
        name = f"trained-{uuid.uuid4().hex[:8]}"
        return {"kind": "train", "model": name, "text": text, "steps": 150, "slice_s": 0.3}
    if number % 20 == 7:
        return {"kind": "score", "model": "echo", "text": text}
    asked = {"max_tokens": 40 + number % 7 * 10, "seed": number}
    return {"kind": "generate", "model": "echo", "prompt": text, **asked}


class Round:
    """The jobs once more, some of their streams being read from the start."""

    def __init__(self, site: Site, client: Client, threads: ThreadPoolExecutor) -> None:
        self._site = site
        self._client = client
        self._threads = threads
        self.jobs: list[Job] = []
        self.readers: dict[int, Future[Answer]] = {}

    def send(self, numbers: Sequence[int]) -> None:
        self._add(numbers, self._client.submit_many(job(number) for number in numbers))

    def send_with_celery(self, numbers: Sequence[int]) -> None:
        """Returns while the messages are on their way to the router."""
        url = self._site.valkey.url
        with Celery("producer", broker=url, set_as_current=False) as app:
            route = app.signature("noidle.route", queue="route", ignore_result=True)
            sent = [route.clone(args=[job(number)]).apply_async() for number in numbers]
        self._add(numbers, [self._client.job(one.id) for one in sent])

    def _add(self, numbers: Sequence[int], jobs: list[Job]) -> None:
        for number, one in zip(numbers, jobs, strict=True):
            if number % READ_EVERY == 0 or number == TRAINED:
                self.readers[number] = self._threads.submit(self._read, one)
        self.jobs += jobs

    def _read(self, one: Job) -> Answer:
        self._wait_known(one)
        return said(one.events(timeout_s=PATIENCE_S))

    def _wait_known(self, one: Job) -> None:
        """Until a router has taken its message; a job that was lost is sent again."""

        def known() -> bool:
            with suppress(UnknownJob):
                return bool(one.status())
            return False

        wait_for(known, f"{one.id} to be known")

    def answers(self) -> list[Answer]:
        for one in self.jobs:
            self._wait_known(one)
        return [Answer.of(one.outcome(timeout_s=PATIENCE_S)) for one in self.jobs]

    @property
    def ids(self) -> list[str]:
        return [one.id for one in self.jobs]

    def wait_more(self, than: int) -> int:
        """Until more have ended; how many."""
        census = self._site.census
        wait_for(lambda: census.ended(self.ids) > than, f"more than {than} ends", PATIENCE_S)
        return census.ended(self.ids)

    def wait_middle(self) -> None:
        assert self.wait_more(MIDDLE) < len(self.jobs) - LEAST_LEFT, "nothing is left to be hurt"


def kill_valkey(site: Site, jobs: Round) -> None:
    jobs.send(LATE)
    site.valkey.kill()
    site.valkey.start()


def cut_power(site: Site, jobs: Round) -> None:
    """Redis comes back without what it did last: ends, words, and jobs that were just sent."""
    kept_bytes = site.valkey.log_bytes()
    jobs.wait_more(site.census.ended(jobs.ids) + len(LATE))
    jobs.send(LATE)
    site.valkey.kill()
    site.valkey.cut_log(kept_bytes)
    site.valkey.start()
    assert site.census.ended(jobs.ids[-len(LATE) :]) == 0


def kill_pool(site: Site, jobs: Round) -> None:
    jobs.send_with_celery(LATE)
    site.local.restarted("cuda", site.local.kill("cuda"))


def freeze_pool(site: Site, jobs: Round) -> None:
    """It stands still until its jobs run elsewhere, and then goes on as if nothing had been."""
    jobs.send_with_celery(LATE)
    pid = site.local.file.pids["cuda"]
    os.kill(pid, signal.SIGSTOP)
    try:
        there = site.on_pool("cuda@box")
        wait_for(lambda: any(site.attempt(each) > 1 for each in there), "a second attempt")
    finally:
        os.kill(pid, signal.SIGCONT)


def kill_engine(site: Site, jobs: Round) -> None:
    jobs.send_with_celery(LATE)
    os.kill(site.engine_pid("cuda@box"), signal.SIGKILL)


def kill_router(site: Site, jobs: Round) -> None:
    jobs.send_with_celery(LATE)
    site.local.restarted("router", site.local.kill("router"))


def cut_connections(site: Site, jobs: Round) -> None:
    """Again each time that something got done in spite of the last cut."""
    jobs.send_with_celery(LATE)
    ended = cuts = 0
    while ended < len(jobs.jobs):
        for kind in ("normal", "pubsub"):
            site.server.execute_command("CLIENT", "KILL", "TYPE", kind, "SKIPME", "yes")
        cuts += 1
        ended = jobs.wait_more(ended)
    assert cuts > 5


# the server's first: it reads all that happened before when it comes back
@pytest.mark.parametrize(
    "blow",
    [kill_valkey, cut_power, kill_pool, freeze_pool, kill_engine, kill_router, cut_connections],
)
def test_every_job_ends_once_with_its_tokens(
    site: Site, undisturbed: list[Answer], blow: Callable[[Site, Round], None], report: Report
):
    with Client(site.valkey.url) as client, ThreadPoolExecutor(READERS) as threads:
        jobs = Round(site, client, threads)
        jobs.send(range(JOBS - len(LATE)))
        jobs.wait_middle()
        running = site.census.running(jobs.ids)
        assert running
        blow(site, jobs)
        since_ms = site.board.now_ms()
        wait_for(lambda: site.census.went_on(running, since_ms), "recovery", RECOVERY_PATIENCE_S)
        assert jobs.answers() == undisturbed
        for number, reader in jobs.readers.items():
            assert reader.result() == undisturbed[number]
        site.wait_whole()
        site.census.check(dict(zip(jobs.ids, undisturbed, strict=True)))
        report(
            f"{blow.__name__}: a stream fell silent for {site.census.silence_s(jobs.ids):.1f} s at"
            f" most, no job began for {site.census.pause_s(jobs.ids):.1f} s at most, attempts"
            f" {dict(sorted(site.census.attempts(jobs.ids).items()))}"
        )
