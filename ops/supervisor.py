"""Keeps processes alive: starts them, restarts what dies, ends them in order. Knows nothing of
Redis, pools or Flower; the plan tells it what to run."""

import time
from collections.abc import Callable, Iterable
from pathlib import Path

from ops.child import Child, ChildSpec, ChildState
from ops.logfile import LogFile
from ops.wakeup import Wakeup

_TICK_S = 2.0
_END_TICK_S = 0.2


class Supervisor:
    """The processes of one data directory.

    Args:
        folder: where they run.
        logs: where their logs lie.
        wakeup: the loop's alarm.
        say: told in one line whenever something changed.
    """

    def __init__(
        self,
        *,
        folder: Path,
        logs: Path,
        wakeup: Wakeup,
        say: Callable[[str], None],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.children: dict[str, Child] = {}
        self._folder = folder
        self._logs = logs
        self._wakeup = wakeup
        self._say = say
        self._clock = clock

    @property
    def pids(self) -> dict[str, int]:
        return {name: child.pid for name, child in self.children.items() if child.pid is not None}

    def now_s(self) -> float:
        return self._clock()

    def start(self, spec: ChildSpec) -> None:
        child = Child(spec, folder=self._folder, log=self._logs / f"{spec.name}.log")
        self.children[spec.name] = child
        child.start(self._clock())

    def tick(self, at_most_s: float = _TICK_S) -> bool:
        """Waits for a signal, a restart that is due, or the time; True if a process died or was
        started."""
        now_s = self._clock()
        due = [child.due_in_s(now_s) for child in self.children.values()]
        self._wakeup.wait(min([at_most_s, *(each for each in due if each is not None)]))
        return self.check()

    def check(self) -> bool:
        changed = False
        for name, child in self.children.items():
            child.log.cut()
            if child.check(self._clock()):
                changed = True
                self._tell(name, child)
        return changed

    def restart(self, name: str, why: str) -> None:
        """Ends a process that lives but does not work; the next check starts it again."""
        self._say(f"{name} {why}; restarting it")
        child = self.children[name]
        child.ask_to_end()
        self._wait_ended([child], hurried=lambda: self._wakeup.ending > 0)
        child.start(self._clock())
        child.restarts += 1

    def end(self, names: Iterable[str]) -> None:
        """Ends these together: SIGTERM, and SIGKILL after each one's grace, or at once when the
        user asks a second time."""
        chosen = [self.children[name] for name in names if name in self.children]
        for child in chosen:
            child.ask_to_end()
        asked = self._wakeup.ending
        self._wait_ended(chosen, hurried=lambda: self._wakeup.ending > max(1, asked))

    def kill_all(self) -> None:
        """The last net: nothing of ours lives after this."""
        for child in self.children.values():
            child.kill()

    def _wait_ended(self, chosen: list[Child], hurried: Callable[[], bool]) -> None:
        began_s = self._clock()
        while waiting := [child for child in chosen if not child.ended()]:
            for child in waiting:
                if hurried() or self._clock() - began_s > child.spec.grace_s:
                    self._say(f"{child.spec.name} did not end in time and is killed")
                    child.kill()
            self._wakeup.wait(_END_TICK_S)

    def _tell(self, name: str, child: Child) -> None:
        if child.state is ChildState.RUNNING:
            self._say(f"{name} started again (process {child.pid})")
        else:
            due_s = child.due_in_s(self._clock()) or 0.0
            self._say(f"{name} ended ({child.last_exit}); starting it again in {due_s:.1f} s")

    def log(self, name: str) -> LogFile:
        return self.children[name].log
