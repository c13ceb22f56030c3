"""What a pool publishes about itself, each second and at once when it changes.

Owns the snapshot that routers steer by and the details for people. Measurements come from a
sampler that is handed in; knows nothing of how they are made, or of jobs."""

import logging
import os
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from noidle.errors import ClusterUnavailable
from noidle.snapshot import (
    DeviceDetail,
    HostDetail,
    PoolDetail,
    PoolSnapshot,
    PoolState,
    Pressure,
    ProcessDetail,
)
from routing.board import Board
from workers.ending import Place
from workers.engine_view import EngineView

LOG = logging.getLogger("noidle.pool")
PERIOD_S = 1.0
HOPELESS_FAILURES = 5
"""Short lives in a row after which a pool says that its engine cannot start."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """One look at host, processes and devices. Absent is what could not be read."""

    pressure: Pressure
    host: HostDetail
    # what a new job may use: of the device, where the engine has one
    memory_free_bytes: int | None = None
    # share of wall time the engine computed
    engine_busy_percent: float | None = None
    processes: tuple[ProcessDetail, ...] = ()
    devices: tuple[DeviceDetail, ...] = ()


class Sampler(Protocol):
    """Called once a second from one thread; may take some tens of milliseconds."""

    def sample(self, engine_pid: int | None) -> Sample: ...


class PlainSampler:
    """Reads nothing but the number of cores: for tests and bare machines."""

    def __init__(self, host: str) -> None:
        self._host = host

    def sample(self, engine_pid: int | None) -> Sample:
        pids = {"worker": os.getpid(), "engine": engine_pid}
        return Sample(
            pressure=Pressure.OK,
            host=HostDetail(host=self._host, cores=os.cpu_count() or 1),
            processes=tuple(ProcessDetail(name=name, pid=pid) for name, pid in pids.items() if pid),
        )


class Reporter:
    """One thread; every other one may say that something changed."""

    def __init__(
        self,
        board: Board,
        view: EngineView,
        sampler: Sampler,
        *,
        place: Callable[[], Place],
        slots: int,
        in_flight: Callable[[], int],
        stored: Callable[[], Sequence[str]],
        storage: str,
        program: str,
        check: Callable[[], None] = lambda: None,
    ) -> None:
        """`check` is called after each report that reached the board."""
        self._board = board
        self._check = check
        self._view = view
        self._sampler = sampler
        self._place = place
        self._slots = slots
        self._in_flight = in_flight
        self._stored = stored
        self._storage = storage
        self._program = program
        self._draining: str | None = None
        self._away = False
        self._due = threading.Event()
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="reporter", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def changed(self) -> None:
        self._due.set()

    def drain(self, why: str) -> None:
        """From the next snapshot on, routers lease nothing to this pool."""
        self._draining = why
        self._due.set()

    def stop(self) -> None:
        self._stopping = True
        self._due.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._stopping:
            self._due.clear()
            try:
                self.publish()
                self._away = False
                self._check()
            except ClusterUnavailable as error:
                if not self._away:
                    LOG.warning("%s; the pool counts as gone till then", error)
                self._away = True
            except Exception:
                # a faulty sampler must not make a working pool look gone for ever
                LOG.exception("the pool could not be described", extra={"event": "report_failed"})
            self._due.wait(PERIOD_S)

    def publish(self) -> None:
        place, view = self._place(), self._view
        sample = self._sampler.sample(place.pid)
        snapshot = self._snapshot(place, sample)
        self._board.publish(
            snapshot,
            PoolDetail(
                snapshot=snapshot,
                host=sample.host,
                processes=sample.processes,
                devices=sample.devices,
                engine_busy_percent=sample.engine_busy_percent,
                batch=view.batch,
                versions=view.hello.versions if view.hello else {},
                program=self._program,
            ),
        )

    def _snapshot(self, place: Place, sample: Sample) -> PoolSnapshot:
        view = self._view
        hello = view.hello
        state, why = self._state()
        slots = min(self._slots, (hello and hello.slots_max) or self._slots)
        return PoolSnapshot(
            pool=place.pool,
            engine=place.engine,
            host=place.host,
            device=place.device or "unknown",
            stand_in=place.stand_in,
            kinds=hello.kinds if hello else (),
            slots=slots,
            in_flight=self._in_flight(),
            state=state,
            why=why,
            pressure=sample.pressure,
            kv_tokens_total=view.kv_tokens_total,
            kv_tokens_free=view.kv_tokens_free,
            prefix_cache_tokens=view.kv_tokens_total if view.keeps_prompts else None,
            working_bytes=-(-view.working_bytes // slots) if view.working_bytes else None,
            memory_free_bytes=sample.memory_free_bytes,
            models=tuple(sorted({*view.models, *self._stored()})),
            loaded=view.loaded,
            storage=self._storage,
            rates=view.rates,
        )

    def _state(self) -> tuple[PoolState, str | None]:
        if self._draining is not None:
            return PoolState.DRAINING, self._draining
        if self._view.hello is not None:
            return PoolState.READY, None
        if self._view.failures >= HOPELESS_FAILURES:
            return PoolState.FAILED, self._view.why
        return PoolState.STARTING, self._view.why
