"""A cluster in one process over a real server: pumps and pools in threads, no Celery."""

import base64
import gc
import json
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, cast

import kombu.pools
import redis
from celery import Celery

from noidle.connection import connect
from noidle.errors import ClusterUnavailable
from noidle.jobs import EngineName, parse_job
from noidle.results import JobResult, JobState
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState, Rates
from routing.board import Claim
from routing.envelope import Envelope
from routing.pump import LinkSender, Pump
from routing.redis_board import RedisBoard
from routing.stray import StrayMessages


def until(happened: Callable[[], bool], what: str, limit_s: float = 20.0) -> None:
    """Waits for a condition; a test that waits in vain says for what."""
    deadline = time.monotonic() + limit_s
    while not happened():
        assert time.monotonic() < deadline, f"in vain for {limit_s} s: {what}"
        time.sleep(0.01)


def close_celery(*apps: Celery) -> None:
    """Celery leaves what it opened to the end of the process, and what waited for results
    unsubscribes when it is collected; here and now, or it would be another test's fault."""
    gc.collect()
    for app in apps:
        app.backend.result_consumer.stop()
        app.backend.client.connection_pool.disconnect()
        app.close()
    kombu.pools.reset()
    gc.collect()


class _Thread:
    """Runs until it is stopped; pytest fails where one ends with an error."""

    def __init__(self) -> None:
        self.stopping = threading.Event()
        self._thread = threading.Thread(target=self.work, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()

    def stop(self) -> None:
        self.stopping.set()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def work(self) -> None:
        raise NotImplementedError


class PumpThread(_Thread):
    def __init__(self, url: str, router: str = "router@a", **options: object) -> None:
        super().__init__()
        client = connect(url)
        links = cast("LinkSender | None", options.get("links"))
        self.pump = Pump(
            RedisBoard(client),
            router,
            links=links,
            strays=StrayMessages(client),
            unplaceable_s=cast("float", options.get("unplaceable_s", 60.0)),
        )

    def work(self) -> None:
        self.pump.run(self.stopping)


class PoolThread(_Thread):
    """Claims what is leased to it and finishes it at once, or when it is told to."""

    def __init__(self, url: str, pool: str, *, hold: bool = False, **fields: object) -> None:
        super().__init__()
        engine, _, host = pool.partition("@")
        values: dict[str, object] = {
            "engine": EngineName(engine.partition(".")[0]),
            "host": host,
            "device": engine,
            "slots": 4,
            "state": PoolState.READY,
            "models": ("echo",),
            "loaded": ("echo",),
            "rates": Rates(prefill_tokens_per_s=1e6, step_s=0.001, step_s_per_sequence=0.0),
        }
        self.snapshot = PoolSnapshot.model_validate({"pool": pool, **(values | fields)})
        self.board = RedisBoard(connect(url))
        self._client = connect(url)
        self._go_on = threading.Event()
        self._holds = hold
        self.done: list[str] = []
        self.most_in_flight = 0
        self.running: list[tuple[str, str]] = []

    def go_on(self) -> None:
        self._holds = False

    def work(self) -> None:
        self.board.register(ModelInfo(name="echo", revision="built-in"))
        published_s = 0.0
        while not self.stopping.is_set():
            try:
                if time.monotonic() - published_s > 0.5:
                    self.board.publish(self.snapshot)
                    published_s = time.monotonic()
                self._take()
                self._end()
            except (ClusterUnavailable, redis.ConnectionError):
                self.stopping.wait(0.1)

    def _take(self) -> None:
        queues = [self.snapshot.engine.value, self.snapshot.pool]
        found = self._client.brpop(queues, timeout=0.02)
        if not isinstance(found, (list, tuple)):
            return
        fields = json.loads(found[1])
        _, arguments, _ = json.loads(base64.b64decode(fields["body"]))
        job_id, token = fields["headers"]["id"], arguments["lease"]
        claim = self.board.claim(job_id, token, self.snapshot.pool, pid=1)
        if isinstance(claim, Claim):
            self.running.append((job_id, token))
            load = self.board.loads()[self.snapshot.pool]
            self.most_in_flight = max(self.most_in_flight, load.in_flight)

    def _end(self) -> None:
        while self.running and not self._holds:
            job_id, token = self.running.pop()
            result = JobResult(id=job_id, state=JobState.DONE, text="", tokens=())
            if self.board.finish(job_id, token, result):
                self.done.append(job_id)


class Producer:
    """Accepts jobs on the board itself."""

    def __init__(self, url: str) -> None:
        self.redis = connect(url)
        self.board = RedisBoard(self.redis)

    def send(self, job_id: str, envelope: Envelope | None = None, **fields: object) -> None:
        job = {"kind": "generate", "id": job_id, "model": "echo", "prompt": "p", "max_tokens": 8}
        assert self.board.accept(parse_job(job | fields), envelope)

    def state(self, job_id: str) -> JobState | None:
        status = self.board.status(job_id)
        return status.state if status else None

    def wait_for(self, job_id: str, state: JobState = JobState.DONE) -> None:
        until(lambda: self.state(job_id) is state, f"{job_id} is {state}")
