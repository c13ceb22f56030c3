"""Routers and pools around one server, each a process of its own that a test starts, tells
something, or kills."""

from pathlib import Path
from typing import Any, cast

from noidle import Client, keys
from noidle.connection import connect
from noidle.handle import Job
from noidle.results import JobState
from noidle.snapshot import PoolSnapshot, PoolState
from routing.picture import SNAPSHOTS_S
from routing.redis_board import RedisBoard
from tests.acceptance.census import Census
from tests.integration.ops.commands import wait_for
from tests.integration.workers.processes import WorkerProcess


class Fleet:
    """Settings are variables of the process: NOIDLE_SLOTS="2", ECHO_STEP_S="0.02"."""

    def __init__(self, folder: Path, url: str) -> None:
        self.url = url
        self.client = Client(url)
        self.server = connect(url)
        self.board = RedisBoard(self.server)
        self.census = Census(self.server)
        self._folder = folder
        self._processes: list[WorkerProcess] = []

    def router(self, **settings: str) -> WorkerProcess:
        return self._start("router", module="ops", **settings)

    def pool(self, engine: str, *options: str, **settings: str) -> WorkerProcess:
        """`noidle worker ENGINE` with the echo program."""
        words = ("worker", engine, "--program", "echo", *options)
        return self._start(*words, module="ops", **settings)

    def told_pool(self, engine: str, index: int, **settings: str) -> WorkerProcess:
        """A pool that believes what the test says of its host: see told_pool.py."""
        return self._start(engine, str(index), module="tests.acceptance.told_pool", **settings)

    def _start(self, *arguments: str, module: str, **settings: str) -> WorkerProcess:
        process = WorkerProcess(self._folder, self.url, *arguments, module=module, **settings)
        self._processes.append(process)
        return process

    def snapshots(self) -> dict[str, PoolSnapshot]:
        return {one.pool: one for one in self.board.pools()}

    def wait_ready(self, *pools: str) -> None:
        def ready() -> bool:
            seen = self.snapshots()
            return all(one in seen and seen[one].state is PoolState.READY for one in pools)

        wait_for(ready, f"{', '.join(pools)} ready")

    def wait_routed(self) -> None:
        """The router, too, has seen what is to be seen now: the snapshots it decides on are never
        older than this, and it reaps before it decides."""
        since_ms = self.board.now_ms() + 1000 * SNAPSHOTS_S
        wait_for(lambda: self.reaped_ms() > since_ms, "the router to look")

    def reaped_ms(self) -> float:
        """When the router last looked at all leases, by Redis's clock."""
        return float(cast(str, self.server.hget(keys.REAPED, "at")) or 0)

    def send(self, prompt: str = "one two three", **fields: Any) -> Job:
        return self.client.submit({**generate(prompt), **fields})

    def wait_known(self, job: Job) -> None:
        """The router has taken it from its queue."""
        wait_for(lambda: self.board.status(job.id), f"{job.id} to be known")

    def wait_moving(self, *jobs: Job, tokens: int = 1) -> None:
        """They run and have said something."""
        for job in jobs:
            wait_for(lambda: moves(job, tokens), f"{job.id} to move")  # noqa: B023  called at once

    def close(self) -> None:
        for process in self._processes:
            process.end()
        self.client.close()
        self.server.close()


def generate(prompt: str = "one two three", **fields: Any) -> dict[str, Any]:
    """A job, short unless told otherwise."""
    return {"kind": "generate", "model": "echo", "prompt": prompt, "max_tokens": 8, **fields}


def moves(job: Job, tokens: int) -> bool:
    status = job.status()
    return status.state is JobState.RUNNING and status.progress >= tokens


def state(job: Job) -> JobState:
    return job.status().state
