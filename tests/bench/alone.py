"""The engine by itself: its own loop with nobody around it, neither pipes nor Redis nor pool.

A child of the bench: `python -m tests.bench.alone DATA THREADS SLOTS` makes the model if it is
not there, then answers each line of jobs on standard input with a line of what they gave."""

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
from tensor_llm.config import ModelConfig

MODEL = "bench"
CONFIG = ModelConfig(
    layers=12,
    hidden=768,
    heads=12,
    kv_heads=4,
    head_size=64,
    mlp=2048,
    vocabulary=32_768,
    context=1024,
)
"""100.7 million parameters."""
_SEED = 1
_TEXTS = ("README.md", "ARCHITECTURE.md", "LICENSE")
_ROOT = Path(__file__).resolve().parents[2]


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
        raise SystemExit(f"the engine alone failed: {end.error.message}")
    return list(end.result.tokens or ())


def _make_model(data: Path) -> None:
    from tensor_llm.checkpoint import save_model
    from tensor_llm.model import new_decoder
    from tensor_llm.store import ModelStore, revision_name
    from tensor_llm.tokenizer import Tokenizer

    store = ModelStore(data)
    if store.current(MODEL) is not None:
        return
    texts = [(_ROOT / name).read_text(encoding="utf-8") for name in _TEXTS]
    tokenizer = Tokenizer.train(texts, 2048)
    revision = revision_name(0, "00000000")
    save_model(
        store,
        MODEL,
        revision,
        model=new_decoder(CONFIG, _SEED),
        tokenizer=tokenizer,
        step=0,
        bytes_per_token=tokenizer.bytes_per_token(texts[0]),
    )
    store.set_current(MODEL, revision)


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
    data, threads, slots = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    for variable in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "RAYON_NUM_THREADS"):
        os.environ[variable] = str(threads)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    from engines.tensor.loop import Loop

    _make_model(data)
    environment = EngineEnvironment(
        engine=EngineName.CPU,
        data_dir=data,
        text_dir=data / "text",
        storage="bench",
        threads=threads,
        slots=slots,
        preload=(MODEL,),
    )
    ears = Ears()
    _say({"parameters": CONFIG.parameters})
    threading.Thread(target=_serve, args=(ears,), daemon=True).start()
    Loop(environment, ears).run()  # type: ignore[arg-type]  # all that the loop asks of it


if __name__ == "__main__":
    main()
