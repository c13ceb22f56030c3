"""The engine's loop: what arrived, a part of the prompts, a decode step, one event for everything
that moved; then a part of a training step, and what became of that.

Owns the order and the sharing of time between kinds of work. Knows nothing of how any of it is
computed."""

import platform
import time
from collections.abc import Callable

import tokenizers
import torch

from engines.environment import EngineEnvironment
from engines.protocol import (
    PROTOCOL_VERSION,
    AnyOp,
    Drop,
    Hello,
    Log,
    ModelSeen,
    Pause,
    Preload,
    Start,
    Stop,
)
from engines.tensor.channel import Channel
from engines.tensor.desk import Desk
from engines.tensor.device import open_device
from engines.tensor.library import Library
from engines.tensor.measuring import Measuring
from engines.tensor.opening import MemoryOpener
from engines.tensor.outbox import Outbox, Refused
from engines.tensor.pace import ACCELERATOR_PART_S, PART_S, Pace
from engines.tensor.rates import TELL_EVERY_S, RateBook
from engines.tensor.school import School
from engines.tensor.sharing import Turns, share_of_training
from engines.tensor.threads import Threads
from noidle.errors import NoidleError
from noidle.jobs import KINDS, EngineName, Train, parse_job
from tensor_llm.store import ModelStore

STILL_THERE_S = 0.5
"""How often runs that wait inside the engine are said to move."""
PULSE_S = 1.0
"""How often all runs are said to move while one part of a training step takes that long."""
TICK_S = 0.02
"""How often work beside the loop is looked after while there is nothing to compute."""


class Loop:
    """One thread computes, so what runs share needs no locks."""

    def __init__(
        self,
        environment: EngineEnvironment,
        channel: Channel,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._environment, self._channel, self._clock = environment, channel, clock
        self._device = open_device(environment)
        measured = environment.engine is EngineName.CPU and not environment.stand_in
        self._threads = Threads(environment.threads, measured=measured)
        self._store = store = ModelStore(environment.data_dir)
        self._rates = rates = RateBook(clock)
        self._outbox = outbox = Outbox(channel.emit)
        part_s = PART_S if self._device.main.type == "cpu" else ACCELERATOR_PART_S
        self._pace = pace = Pace(rates, part_s=part_s)
        opener = MemoryOpener(
            store,
            self._device,
            slots=environment.slots,
            limit_bytes=environment.memory_bytes,
            rates=rates,
            part_tokens=pace.part_tokens,
            say=self._say,
            clock=clock,
        )
        self._library = Library(store, opener, clock, on_short=self._make_memory)
        self._measuring = self._make_measuring()
        self._desk = self._make_desk()
        self._school = School(
            store,
            environment.text_dir,
            self._device,
            self._library,
            outbox=outbox,
            rates=rates,
            clock=clock,
            pulse=self._pulse,
        )
        self._turns = Turns()
        self._still_there_at_s = clock()

    def _make_measuring(self) -> Measuring:
        return Measuring(
            self._library,
            rates=self._rates,
            pace=self._pace,
            slots=self._environment.slots,
            settle=self._threads.settle,
            clock=self._clock,
        )

    def _make_desk(self) -> Desk:
        return Desk(
            self._library,
            outbox=self._outbox,
            rates=self._rates,
            pace=self._pace,
            measuring=self._measuring,
            settle=self._threads.settle,
            clock=self._clock,
        )

    def run(self) -> None:
        """Until told to stop."""
        self._greet()
        computed = False
        while True:
            for op in self._channel.take(0.0 if computed else self._wait_s()):
                if isinstance(op, Stop):
                    return
                self._apply(op)
            decoded = self._desk.advance()
            self._say_who_waits()
            self._tell(decoded or 0)
            computed = decoded is not None
            if not computed and self._desk.measure():
                computed = True
            elif self._learn(others=computed):
                computed = True
                self._tell(decoded or 0)

    def _wait_s(self) -> float | None:
        """How long there is nothing to do but to listen."""
        if self._desk.busy or self._school.busy:
            return TICK_S
        return TELL_EVERY_S if self._rates.untold or self._school.keeps else None

    def _greet(self) -> None:
        versions = {
            "python": platform.python_version(),
            "torch": torch.__version__,
            "tokenizers": tokenizers.__version__,
        }
        self._channel.emit(
            Hello(
                protocol=PROTOCOL_VERSION,
                device=self._device.label,
                kinds=tuple(KINDS),
                pauses=True,
                versions=versions,
            )
        )
        for name in self._store.names():
            try:
                self._channel.emit(ModelSeen(model=self._store.info(name)))
            except NoidleError as error:
                self._warn(error)
        for name in self._environment.preload:
            self._preload(name)

    def _apply(self, op: AnyOp) -> None:
        match op:
            case Start():
                self._start(op)
            case Drop():
                self._desk.drop(op.run)
                self._school.drop(op.run)
            case Pause():
                self._desk.drop(op.run)
                self._school.pause(op.run, free=op.free)
            case Preload():
                self._preload(op.model)

    def _start(self, start: Start) -> None:
        try:
            job = parse_job(start.job)
            if isinstance(job, Train):
                self._school.begin(start, job)
            else:
                self._desk.begin(start, job)
        except Exception as error:  # noqa: BLE001  ends this run alone
            self._outbox.fail(Refused(start.run), error)

    def _preload(self, name: str) -> None:
        try:
            self._desk.preload(name)
        except NoidleError as error:
            self._warn(error)

    def _learn(self, *, others: bool) -> bool:
        """A part of a training step, where its share of the time allows."""
        began_s, rank = self._clock(), self._school.rank
        if rank is not None:
            unread = self._desk.unread_rank
            share = share_of_training(rank, others=others, unread_rank=unread)
            if not self._turns.due(share, began_s):
                return False
        with self._threads.all_of_them():
            learnt = self._school.advance()
        if learnt:
            self._turns.took(began_s, self._clock())
            self._desk.disturb()
        return learnt

    def _say_who_waits(self) -> None:
        now_s = self._clock()
        if now_s - self._still_there_at_s < STILL_THERE_S:
            return
        self._still_there_at_s = now_s
        for run in [*self._desk.waiting(), *self._school.waiting()]:
            self._outbox.moved(run)

    def _pulse(self) -> None:
        """From within a long part of a training step: it moves, and the others behind it too."""
        now_s = self._clock()
        if now_s - self._still_there_at_s < PULSE_S:
            return
        self._still_there_at_s = now_s
        for run in [*self._desk.everyone(), *self._school.everyone()]:
            self._outbox.moved(run)
        self._flush(0)

    def _tell(self, decoded: int) -> None:
        self._flush(decoded)
        self._desk.forget_ended()
        self._school.forget_ended()
        self._outbox.clear()
        news = self._rates.news()
        if news is not None:
            self._channel.emit(news)

    def _flush(self, decoded: int) -> None:
        kv = self._library.kv_tokens
        if kv is not None:
            kv = kv[0], kv[1] + self._measuring.borrowed_tokens
        working_bytes = self._library.working_bytes(self._pace.largest_part)
        self._outbox.flush(self._library.loaded, decoded, kv, working_bytes)

    def _make_memory(self) -> bool:
        return self._school.forget_kept()

    def _say(self, message: str) -> None:
        self._channel.emit(Log(level="info", message=message))

    def _warn(self, error: NoidleError) -> None:
        self._channel.emit(Log(level="warning", message=str(error)))
