"""The engine by itself: its own loop with nobody around it, neither pipes nor Redis nor pool.

A child of the bench: `python -m tests.bench.alone DATA MODEL THREADS SLOTS` answers each line of
jobs on standard input with a line of what they gave."""

import json
import os
import queue
import sys
import threading
import time
from pathlib import Path
from typing import Any

from engines.environment import EngineEnvironment
from engines.protocol import AnyEvent, AnyOp, Done, Failed, Start, Stop
from noidle.jobs import EngineName, parse_job


class Ears:
    """In place of the engine's pipes: takes its events as they are, and waits for ends."""

    def __init__(self) -> None:
        self._ops: queue.SimpleQueue[AnyOp] = queue.SimpleQueue()
        self._ends: queue.SimpleQueue[Done | Failed] = queue.SimpleQueue()

    def listen(self) -> None: ...

    def emit(self, event: AnyEvent) -> None:
        if isinstance(event, Done | Failed):
            self._ends.put(event)

    def take(self, wait_s: float | None) -> list[AnyOp]:
        ops = []
        try:
            ops.append(self._ops.get(timeout=wait_s) if wait_s != 0 else self._ops.get_nowait())
            while True:
                ops.append(self._ops.get_nowait())
        except queue.Empty:
            return ops

    def run(self, starts: list[Start]) -> tuple[float, list[list[int]]]:
        """Seconds from the first start to the last end, and each run's tokens."""
        began_s = time.perf_counter()
        for start in starts:
            self._ops.put(start)
        ends = [self._ends.get() for _ in starts]
        seconds = time.perf_counter() - began_s
        tokens = {end.run: _tokens(end) for end in ends}
        return seconds, [tokens[start.run] for start in starts]

    def stop(self) -> None:
        self._ops.put(Stop())


def _tokens(end: Done | Failed) -> list[int]:
    if isinstance(end, Failed):
        sys.stderr.write(f"the engine alone failed: {end.error.message}\n")
        os._exit(1)
    return list(end.result.tokens or ())


def _serve(ears: Ears) -> None:
    for number, line in enumerate(sys.stdin):
        jobs = [parse_job(data) for data in json.loads(line)]
        starts = [Start.of(f"{number}-{job.id}", job, job.seed or 0) for job in jobs]
        seconds, tokens = ears.run(starts)
        _say({"seconds": seconds, "tokens": tokens})
    ears.stop()


def _say(answer: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


def main() -> None:
    data, model, threads, slots = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    # as the engine's own start does, before torch is imported
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from engines.tensor.loop import Loop

    environment = EngineEnvironment(
        engine=EngineName.CPU,
        data_dir=data,
        text_dir=data / "text",
        storage="bench",
        threads=threads,
        slots=slots,
        preload=(model,),
    )
    ears = Ears()
    threading.Thread(target=_serve, args=(ears,), daemon=True).start()
    Loop(environment, ears).run()  # type: ignore[arg-type]  # all that the loop asks of it


if __name__ == "__main__":
    main()
