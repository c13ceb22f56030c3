"""A pool: one Celery worker process that lends the slots of one engine on one host.

Owns the assembly and the order of start and end; each part has a module of its own. Knows
nothing of routing decisions or of tensors."""

import logging
import os
import threading
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import redis
from redis.exceptions import RedisError

from engines.environment import EngineEnvironment
from engines.process import EngineProcess
from engines.program import Program
from engines.storage import storage_id, stored_model, stored_revisions
from noidle.connection import connect, reachable
from noidle.errors import ClusterUnavailable
from noidle.jobs import EngineName
from routing.message import lease_message
from routing.redis_board import RedisBoard
from workers.app import Role, make_app
from workers.board_loop import BoardLoop
from workers.drain import LAST_WORD_S, Drain
from workers.ending import Place
from workers.engine_view import EngineView
from workers.hearing import Hearing
from workers.intake import Intake
from workers.reporter import Reporter, Sampler
from workers.revoke import replace_revoke
from workers.runs import Runs
from workers.settings import Settings
from workers.shelf import Shelf
from workers.tasks import add_pool_tasks
from workers.twin import refuse_twin
from workers.work import Work
from workers.worker import Worker

LOG = logging.getLogger("noidle.pool")
DEFAULT_SLOTS = {
    EngineName.CPU: 4,
    EngineName.HYBRID: 4,
    EngineName.CUDA: 16,
    EngineName.GPU: 8,
}
ENGINE_STOP_S = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """What makes one pool another than its neighbour; see run_pool."""

    name: str
    engine: EngineName
    program: Program
    slots: int
    threads: int
    stand_in: bool
    preload: tuple[str, ...]
    device: str | None
    memory_bytes: int | None


def run_pool(
    settings: Settings,
    engine: EngineName,
    index: int = 0,
    *,
    program: Program,
    sampler: Sampler,
    slots: int | None = None,
    threads: int | None = None,
    stand_in: bool = False,
    preload: tuple[str, ...] = (),
    device: str | None = None,
    memory_bytes: int | None = None,
) -> int:
    """Runs in the main thread until a signal ends it; returns the exit status.

    Raises:
        ConfigError: another pool of this name is in the cluster.

    Args:
        index: number among this host's pools of the engine.
        slots, threads, preload: before those of the settings.
        device: as torch names it; absent: the first of the engine's kind.
        memory_bytes: for weights and cache; absent: what is free, less a reserve.
    """
    plan = PoolPlan(
        name=pool_name(engine, settings.host, index),
        engine=engine,
        program=program,
        slots=slots or settings.slots or DEFAULT_SLOTS[engine],
        threads=threads or settings.threads or _default_threads(stand_in),
        stand_in=stand_in,
        preload=preload or settings.preload,
        device=device,
        memory_bytes=memory_bytes,
    )
    # a claim for each slot; the board loop, the reporter, the drain and revocations
    with connect(settings.url, max_connections=plan.slots + 4) as client:
        refuse_twin(RedisBoard(client), plan.name)
        return Pool(settings, plan, sampler, client).run()


def pool_name(engine: EngineName, host: str, index: int = 0) -> str:
    """Also its Celery node name and its own queue."""
    return f"{engine}.{index}@{host}" if index else f"{engine}@{host}"


def _default_threads(stand_in: bool) -> int:
    """All cores of this process but one, which is left to the system and the broker."""
    if stand_in:
        return 1
    if hasattr(os, "sched_getaffinity"):
        return max(1, len(os.sched_getaffinity(0)) - 1)
    return max(1, (os.cpu_count() or 1) - 1)


def _shelf(board: RedisBoard, storage: str, data_dir: Path) -> Shelf:
    return Shelf(
        board,
        storage,
        revisions=partial(stored_revisions, data_dir),
        describe=partial(stored_model, data_dir),
    )


class Pool:
    """The parts of one pool, and what they tell each other."""

    def __init__(
        self,
        settings: Settings,
        plan: PoolPlan,
        sampler: Sampler,
        client: redis.Redis,
    ) -> None:
        self._client = client
        self._name = name = plan.name
        self._queues = (plan.engine.value, name)
        self._closing = threading.Event()
        self._where = Place(
            pool=name, engine=plan.engine, host=settings.host, stand_in=plan.stand_in
        )
        storage = storage_id(settings.data_dir)
        self._board = board = RedisBoard(client, lease_s=settings.lease_s)
        self._view = view = EngineView()
        self._runs = runs = Runs()
        self._engine = engine = EngineProcess(
            plan.program,
            plan.engine,
            _environment(settings, plan, storage).variables(),
            on_message=lambda event: self._loop.hear(event),
            on_exit=lambda end: self._loop.died(end),
        )
        self._reporter = Reporter(
            board,
            view,
            sampler,
            place=self._place,
            slots=plan.slots,
            in_flight=lambda: len(runs),
            stored=_shelf(board, storage, settings.data_dir).look,
            storage=storage,
            program=plan.program.name,
            check=Hearing(self._waiting, lambda: len(runs) < plan.slots, self._deaf).check,
        )
        self._loop = BoardLoop(
            board,
            engine,
            runs,
            view,
            place=self._place,
            lease_s=settings.lease_s,
            changed=self._reporter.changed,
        )
        self._drain = Drain(self, board, runs, pool=name, grace_s=settings.grace_s)
        self._worker = self._make_worker(settings, plan)

    def run(self) -> int:
        # 1. the engine loads while the rest comes up
        self._loop.start()
        self._engine.start()
        self._reporter.start()
        # 2. until a signal
        self._worker.start()
        # 3. in order: nothing may speak to what is gone
        self._closing.set()
        self._reporter.stop()
        self._loop.stop()
        try:
            self._board.leave(self._name)
        except ClusterUnavailable as error:
            LOG.warning("the pool is forgotten by itself: %s", error)
        self._engine.stop(ENGINE_STOP_S)
        return self._worker.exitcode or 0

    def refuse_work(self) -> None:
        self._closing.set()
        self._reporter.drain("told to stop")

    def _waiting(self) -> int:
        with reachable(self._client), self._client.pipeline(transaction=False) as pipe:
            for queue in self._queues:
                pipe.llen(queue)
            return sum(pipe.execute())

    def _deaf(self) -> None:
        if not self._closing.is_set():
            # the second one is for a loop that hears nothing of the first either
            self._drain.begin()
            self._drain.begin()

    def _stopping(self) -> None:
        """After a drain there is nothing left of this to do; after a fault of Celery's there is,
        and its threads would be waited for as long as their runs take."""
        self.refuse_work()
        self._loop.leave(LAST_WORD_S)

    def stop_consuming(self) -> None:
        self._worker.stop_consuming()

    def hand_back(self, wait_s: float) -> None:
        self._loop.leave(wait_s)

    def end(self) -> None:
        self._worker.end()

    def _place(self) -> Place:
        hello = self._view.hello
        device = hello.device if hello else None
        return replace(self._where, device=device, pid=self._engine.pid)

    def _make_worker(self, settings: Settings, plan: PoolPlan) -> Worker:
        app = make_app(settings, Role.POOL, self._name, self._queues)
        work = Work(
            self._board,
            self._engine,
            self._runs,
            pool=self._name,
            hear=self._loop.hear,
            pause=self._closing.wait,
        )
        intake = Intake(self._board, revoked_before=lambda _: False, pause=self._closing.wait)
        add_pool_tasks(
            app,
            work,
            intake,
            engine=plan.engine,
            forward=self._forward,
            announce=self._announce,
        )
        replace_revoke(self._board, None)
        return Worker(
            app,
            name=self._name,
            concurrency=plan.slots,
            prefetch=plan.slots,
            install_signals=self._drain.install_signals,
            shut_down=self._drain.begin,
            stopping=self._stopping,
        )

    def _forward(self, job_id: str, kind: str, token: str, pool: str) -> None:
        message = lease_message(
            job_id=job_id, kind=kind, token=token, queue=pool, origin=self._name
        )
        try:
            self._client.lpush(pool, message)
        except RedisError as error:
            LOG.warning("the lease of job %s in %s runs out by itself: %s", job_id, pool, error)

    def _announce(self, event: str, **fields: Any) -> None:
        dispatcher = self._worker.consumer.event_dispatcher
        if dispatcher is not None:
            dispatcher.send(event, **fields)


def _environment(settings: Settings, plan: PoolPlan, storage: str) -> EngineEnvironment:
    return EngineEnvironment(
        engine=plan.engine,
        data_dir=settings.data_dir,
        text_dir=settings.texts,
        storage=storage,
        threads=plan.threads,
        slots=plan.slots,
        stand_in=plan.stand_in,
        dtype=settings.dtype,
        device=plan.device,
        memory_bytes=plan.memory_bytes,
        preload=plan.preload,
    )
