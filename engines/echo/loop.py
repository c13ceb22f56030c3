"""The loop of an echo engine: what arrived, one part of a prompt and one token of each run in one
step, one event for everything that moved.

Owns time and the pipes; knows nothing of what a run says."""

import json
import os
import queue
import sys
import threading
import time
from typing import Any

from engines.echo.answer import Answer, Reading
from engines.echo.described import BUILT_IN, Described, JobFault, Json
from engines.echo.lesson import Lesson
from engines.echo.pace import Pace

KINDS: dict[str, type[Answer | Reading | Lesson]] = {
    "generate": Answer,
    "score": Reading,
    "train": Lesson,
}
EXIT_GRACE_S = 2.0
LOAD_TICK_S = 0.1


class Loop:
    """Everything but the reading of input happens in one thread."""

    def __init__(self, described: Described) -> None:
        self._described = described
        self._ops: queue.SimpleQueue[Json] = queue.SimpleQueue()
        self._runs: dict[str, Answer | Reading | Lesson] = {}
        self._loaded: list[str] = []
        self._pace = Pace()
        # told once the step's own event is out
        self._ends: list[Json] = []

    def run(self) -> None:
        threading.Thread(target=self._read, daemon=True).start()
        self._greet()
        while self._take_ops():
            read, part_s = self._prefill()
            moved = self._step(part_s)
            if read and read not in [step["run"] for step in moved]:
                moved.append({"run": read})
            self._emit("step", runs=moved, loaded=self._loaded, **self._room())
            self._end()

    def _read(self) -> None:
        for line in sys.stdin.buffer:
            self._ops.put(json.loads(line))
        self._ops.put({"op": "stop"})
        # a run that hangs does not keep the process alive
        time.sleep(EXIT_GRACE_S)
        os._exit(0)

    def _greet(self) -> None:
        described = self._described
        self._emit(
            "hello",
            protocol=1,
            device=f"described rates ({described.engine})",
            kinds=described.kinds,
            models=described.models,
            kv_tokens_total=described.kv_tokens,
            pauses=True,
            versions={"python": sys.version.split()[0]},
        )
        for model in described.models:
            self._emit("model", model=described.model_info(model, BUILT_IN))
        self._emit(
            "rates",
            prefill_tokens_per_s=described.prefill_tokens_per_s,
            step_s=described.step_s,
            step_s_per_sequence=described.step_s_per_sequence,
            chunk_tokens=described.chunk_tokens,
        )

    def _take_ops(self) -> bool:
        """Waits for one while nothing runs; False once it is time to go."""
        while not self._runs or not self._ops.empty():
            op = self._ops.get()
            if not self._runs:
                self._pace.begin()
            match op.get("op"):
                case "start":
                    self._start(op["run"], op)
                case "drop":
                    self._drop(op["run"])
                case "pause":
                    self._pause(op["run"])
                case "preload":
                    self._preload(op["model"])
                case "stop":
                    return False
        return True

    def _start(self, run: str, op: Json) -> None:
        try:
            kind = op["job"]["kind"]
            if kind not in self._described.kinds:
                raise JobFault.of("kind", kind, " or ".join(self._described.kinds))
            started = KINDS[kind](op, self._described)
            if not isinstance(started, Lesson):
                self._load(started.model, run)
            elif started.fresh:
                self._emit("model", model=started.save())
        except JobFault as fault:
            self._emit("failed", run=run, error=fault.error)
        else:
            self._runs[run] = started

    def _drop(self, run: str) -> None:
        dropped = self._runs.pop(run, None)
        if isinstance(dropped, Lesson) and dropped.moved:
            self._emit("yield", run=run, **dropped.end_slice())
        elif dropped:
            self._emit("dropped", run=run)

    def _pause(self, run: str) -> None:
        state = self._runs.get(run)
        if isinstance(state, Lesson):
            state.pausing = True
        else:
            self._drop(run)

    def _preload(self, model: str) -> None:
        try:
            self._load(model)
        except JobFault as fault:
            self._emit("log", level="warning", message=f"cannot preload: {fault}")

    def _load(self, model: str, run: str | None = None) -> None:
        if model in self._loaded:
            return
        self._described.revision(model)
        ready = time.monotonic() + self._described.load_s
        while (left := ready - time.monotonic()) > 0:
            time.sleep(min(left, LOAD_TICK_S))
            waiting = [*self._runs, *([run] if run else [])]
            self._emit("step", runs=[{"run": one} for one in waiting], loaded=self._loaded)
        self._loaded.append(model)
        self._pace.begin()
        self._emit("step", runs=[], loaded=self._loaded)

    def _prefill(self) -> tuple[str | None, float]:
        """One part of a prompt, by class and then the one with the least left: the run it belongs
        to, and the seconds it takes of this step."""
        unread = [
            (state.rank, state.prefill_left, place, run, state)
            for place, (run, state) in enumerate(self._runs.items())
            if not isinstance(state, Lesson) and state.prefill_left
        ]
        if not unread:
            return None, 0.0
        *_, run, state = min(unread, key=lambda one: one[:3])
        size = min(state.prefill_left, self._described.chunk_tokens)
        spent_s = size / self._described.prefill_tokens_per_s
        state.prefill_left -= size
        state.prefill_s += spent_s
        return run, spent_s

    def _step(self, part_s: float) -> list[Json]:
        """One pass over the weights reads the part and makes a token for each run."""
        ready = {run: state for run, state in self._runs.items() if not state.prefill_left}
        answers = [state for state in ready.values() if isinstance(state, Answer)]
        spent_s = self._described.step_s_of(part_s, len(answers))
        self._pace.spend(spent_s)
        for state in answers:
            state.decode_s += spent_s
        moved = [self._advance(run, state) for run, state in ready.items()]
        if any(isinstance(state, Lesson) for state in ready.values()):
            self._pace.begin()
        return moved

    def _advance(self, run: str, state: Answer | Reading | Lesson) -> Json:
        try:
            step, result = state.step()
        except JobFault as fault:
            self._ends.append({"event": "failed", "run": run, "error": fault.error})
            return {"run": run}
        if result is not None:
            if isinstance(state, Lesson):
                self._ends.append({"event": "model", "model": state.save()})
            self._ends.append({"event": "done", "run": run, "result": result})
        elif isinstance(state, Lesson) and state.over:
            self._ends.append({"event": "yield", "run": run, **state.end_slice()})
        return {"run": run, **step}

    def _end(self) -> None:
        for end in self._ends:
            self._emit(**end)
            self._runs.pop(end.get("run", ""), None)
        self._ends.clear()

    def _room(self) -> Json:
        total = self._described.kv_tokens
        if total is None:
            return {}
        return {"kv_tokens_free": total - sum(one.kv_tokens for one in self._runs.values())}

    def _emit(self, event: str, **fields: Any) -> None:
        message = {"event": event, **fields}
        line = json.dumps({key: value for key, value in message.items() if value is not None})
        sys.stdout.write(line + "\n")
        sys.stdout.flush()
