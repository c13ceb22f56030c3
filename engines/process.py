"""An engine program under supervision: started, heard, restarted after a death, stopped.

Owns the sequence of lives of one engine; its crash or lack of memory never touches this
process. Knows nothing of jobs, leases or Redis: the pool decides when a run has hung."""

import logging
import threading
import time
from collections.abc import Callable, Mapping
from functools import partial

from engines.child import Child
from engines.exit import Exit, Lives, describe
from engines.program import Program, child_variables
from engines.protocol import (
    PROTOCOL_VERSION,
    AnyEvent,
    AnyOp,
    Done,
    Hello,
    Log,
    ProtocolError,
    Step,
    Stop,
    UnknownMessage,
    parse_event,
    to_line,
)
from noidle.errors import NoidleError, shorten

LOG = logging.getLogger("noidle.engine")
_LEVELS = logging.getLevelNamesMapping()


class EngineGone(NoidleError):
    """The engine is not up, or no longer the life that the caller meant."""


class EngineProcess:
    """Callbacks come from one thread, in the order of the engine's lines; `on_exit` comes
    after the last message of a life and before the first of the next."""

    def __init__(
        self,
        program: Program,
        engine: str,
        environment: Mapping[str, str],
        *,
        on_message: Callable[[AnyEvent], None],
        on_exit: Callable[[Exit], None],
        hello_timeout_s: float = 120.0,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._program = program
        self._engine = engine
        self._environment = environment
        self._on_message = on_message
        self._on_exit = on_exit
        self._hello_timeout_s = hello_timeout_s
        self._lives = Lives(clock)
        self._lock = threading.Lock()
        self._child: Child | None = None
        self._hello: Hello | None = None
        self._worked = False
        self._why_killed: str | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(
            target=self._supervise, name=f"engine-{engine}", daemon=True
        )

    @property
    def hello(self) -> Hello | None:
        """What the present life said of itself; None while it is not up."""
        return self._hello

    @property
    def generation(self) -> int:
        """Number of the present life, from 1."""
        return self._lives.count

    @property
    def pid(self) -> int | None:
        child = self._child
        return child.pid if child else None

    def start(self) -> None:
        """Returns at once; `on_message` gets the Hello."""
        self._thread.start()

    def send(self, op: AnyOp, generation: int | None = None) -> None:
        """Never blocks. The engine answers every start, unless its life ends first.

        Raises:
            EngineGone: it is not up, or `generation` is a former life.
            ProtocolError: the message is too long for a line.
        """
        line = to_line(op)
        with self._lock:
            if self._child is None or self._hello is None:
                raise EngineGone(f"the {self._engine} engine is not up; it is being restarted")
            if generation not in (None, self._lives.count):
                raise EngineGone(f"life {generation} of the {self._engine} engine is over")
            self._child.send(line)

    def kill(self, reason: str) -> None:
        """Ends the present life at once; the next one starts by itself."""
        with self._lock:
            if self._child is None:
                return
            self._why_killed = self._why_killed or reason
            self._child.kill()

    def stop(self, grace_s: float = 5.0) -> None:
        """Asks it to exit, kills it after the grace, and returns when it is gone for good."""
        self._stopping.set()
        with self._lock:
            if self._child is not None:
                self._child.send(to_line(Stop()))
                self._child.end_input()
        if not self._thread.is_alive() or threading.current_thread() is self._thread:
            return
        self._thread.join(grace_s)
        self.kill("did not stop in time")
        self._thread.join()

    def _supervise(self) -> None:
        while not self._stopping.is_set():
            end = self._live_once()
            LOG.log(
                logging.INFO if end.expected else logging.WARNING,
                "engine %s (pid %s) %s; %s",
                self._engine,
                end.pid,
                end.reason,
                "stopped" if end.restart_in_s is None else f"restart in {end.restart_in_s:g} s",
                extra={"event": "engine_exit", "pool": self._engine},
            )
            self._call(partial(self._on_exit, end))
            if end.restart_in_s is not None:
                self._stopping.wait(end.restart_in_s)

    def _live_once(self) -> Exit:
        self._lives.begin()
        variables = child_variables(self._program, self._environment)
        try:
            child = Child(self._program, variables, f"engine-{self._engine}")
        except OSError as error:
            return self._lives.end(
                pid=None,
                code=None,
                reason=f"could not be started: {error}",
                tail=(),
                said_hello=False,
                worked=False,
                expected=self._stopping.is_set(),
            )
        with self._lock:
            self._child, self._why_killed = child, None
        self._worked = False
        if self._stopping.is_set():
            child.end_input()
        self._listen(child)
        return self._bury(child)

    def _listen(self, child: Child) -> None:
        timer = threading.Timer(
            self._hello_timeout_s, self.kill, [f"said nothing for {self._hello_timeout_s:g} s"]
        )
        timer.daemon = True
        timer.start()
        try:
            for line in child.lines():
                self._hear(line, timer)
        except ProtocolError as error:
            self.kill(str(error))
        finally:
            timer.cancel()

    def _hear(self, line: bytes, timer: threading.Timer) -> None:
        try:
            event = parse_event(line)
        except UnknownMessage as error:
            LOG.warning("engine %s: %s; passed over", self._engine, error)
            return
        if isinstance(event, Log):
            LOG.log(_LEVELS[event.level.upper()], "engine %s: %s", self._engine, event.message)
            return
        if isinstance(event, Hello):
            timer.cancel()
            self._welcome(event)
        elif self._hello is None:
            raise ProtocolError(f"spoke before its hello: {shorten(line)}")
        self._worked = self._worked or _shows_work(event)
        self._call(partial(self._on_message, event))

    def _welcome(self, hello: Hello) -> None:
        if hello.protocol != PROTOCOL_VERSION:
            raise ProtocolError(f"protocol = {hello.protocol}: allowed is {PROTOCOL_VERSION}")
        with self._lock:
            self._hello = hello

    def _bury(self, child: Child) -> Exit:
        code = child.reap()
        with self._lock:
            said_hello, killed = self._hello is not None, self._why_killed
            self._child = self._hello = None
        tail = tuple(child.stderr_tail)
        return self._lives.end(
            pid=child.pid,
            code=code,
            reason=describe(code, killed, tail),
            tail=tail,
            said_hello=said_hello,
            worked=self._worked,
            expected=self._stopping.is_set(),
        )

    def _call(self, callback: Callable[[], None]) -> None:
        try:
            callback()
        except Exception:
            # the supervisor outlives its listeners' faults
            LOG.exception("a listener of engine %s failed", self._engine)


def _shows_work(event: AnyEvent) -> bool:
    """Something came of a run."""
    match event:
        case Done():
            return True
        case Step():
            return any(run.tokens or run.step is not None for run in event.runs)
    return False
