"""The real cpu engine, described by the rates that its pool published after a warm-up; each run
has its own. Owns the warm-up; knows nothing of how rates are measured."""

import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from noidle.snapshot import PoolSnapshot
from ops.metrics import cgroup
from routing.simulation.described import Described, DescribedPool
from routing.simulation.trace import Row
from tensor_llm.tokenizer import Tokenizer
from tests.bench.folder import temporary_folder
from tests.bench.model import CONFIG, MODEL
from tests.bench.processes import ROOT, cpu_s
from tests.bench.reality.compare import PartFigures, Run, numbered, told
from tests.bench.reality.player import Player
from tests.bench.reality.prompts import Words, single_words
from tests.bench.reality.site import PoolPlan, Site, site
from tests.bench.reality.slices import Slice, fit_trace
from tests.bench.reality.virtual import simulate

LOAD = 0.7
POOL = "cpu@one"
SLOTS = 8
DTYPE = "int8"
_WARM_ROUNDS, _WARM_PROMPT, _WARM_TOKENS = 3, 200, 12
_WARM_NUMBERS = 1_000_000
"""Numbers of prompts that no request has."""
_SETTLED_S, _PATIENCE_S = 2.5, 120.0


def measure_engine(
    rows: Sequence[Row], seconds: float, count: int, say: Callable[[str], None]
) -> PartFigures:
    played: list[tuple[Slice, Run]] = []
    for number in range(count):
        with temporary_folder() as folder:
            played.append(_run(folder, rows, seconds, numbered(say, number)))
        say(f"run {number + 1} of {count}: {told(played[-1][1])}")
    first = played[0][0]
    return PartFigures(
        name="engine",
        words=tuple(first.words),
        pools=first.described.pools,
        jobs=len(first.requests),
        runs=tuple(run for _, run in played),
    )


def _run(
    folder: Path, rows: Sequence[Row], seconds: float, say: Callable[[str], None]
) -> tuple[Slice, Run]:
    subprocess.run([sys.executable, "-m", "tests.bench.model", str(folder)], cwd=ROOT, check=True)
    threads = max(1, cgroup.cores() - 1)
    plan = PoolPlan(
        name=POOL,
        slots=SLOTS,
        program="tensor",
        threads=threads,
        preload=MODEL,
        settings={"NOIDLE_DTYPE": DTYPE},
    )
    with site(folder, [plan]) as up:
        words = _words(folder, up)
        say("warming up")
        _warm_up(up, words)
        pool = _described(_settled(up))
        slice_ = fit_trace(rows, Described(context=CONFIG.context, pools=(pool,)), LOAD, seconds)
        say(_told(pool, len(slice_.requests)))
        player = Player(up.client, MODEL, lambda one: words.prompt(one.number, one.prompt), say)
        used_s, began_s = cpu_s(), time.monotonic()
        played = player.play(slice_.requests)
        share = (cpu_s() - used_s) / (time.monotonic() - began_s) / cgroup.cores()
        later = _described(_settled(up))
    found = Run.of(played.lives, simulate(slice_), late_s=played.late_s, cpu_share=share)
    return slice_, found.model_copy(update={"slower": _step_s(later) / _step_s(pool)})


def _words(folder: Path, up: Site) -> Words:
    (path,) = (folder / "models" / MODEL).glob("*/tokenizer.json")
    tokenizer = Tokenizer.load(path)
    words = single_words(tokenizer.vocabulary, tokenizer.decode, tokenizer.encode)
    return Words(words, up.models()[MODEL].bytes_per_token)


def _warm_up(up: Site, words: Words) -> None:
    """Batches of every size, since runs end one after the other."""
    for number in range(_WARM_ROUNDS):
        sent = [
            up.client.submit(
                {
                    "kind": "generate",
                    "model": MODEL,
                    "prompt": words.prompt(_WARM_NUMBERS + number * SLOTS + at, _WARM_PROMPT),
                    "max_tokens": _WARM_TOKENS * (at + 1),
                    "label": "warm-up",
                }
            )
            for at in range(SLOTS)
        ]
        for job in sent:
            job.result(_PATIENCE_S)


def _settled(up: Site) -> PoolSnapshot:
    """As it publishes itself once it has told all that it measured."""
    snapshot, since_s = up.snapshots()[POOL], time.monotonic()
    while time.monotonic() - since_s < _SETTLED_S:
        time.sleep(0.1)
        newer = up.snapshots()[POOL]
        if newer.rates != snapshot.rates:
            snapshot, since_s = newer, time.monotonic()
    return snapshot


def _described(snapshot: PoolSnapshot) -> DescribedPool:
    rates = snapshot.rates.of(MODEL)
    assert rates.prefill_tokens_per_s is not None
    assert rates.step_s is not None
    assert rates.chunk_tokens is not None
    assert snapshot.kv_tokens_total is not None
    return DescribedPool(
        pool=snapshot.pool,
        reason="As the pool published it.",
        slots=snapshot.slots,
        kv_tokens=snapshot.kv_tokens_total,
        prefill_tokens_per_s=rates.prefill_tokens_per_s,
        step_s=rates.step_s,
        step_s_per_sequence=rates.step_s_per_sequence or 0.0,
        chunk_tokens=int(rates.chunk_tokens),
        prefix_cache_tokens=0,
    )


def _step_s(pool: DescribedPool) -> float:
    """Of a batch of middle size."""
    return pool.step_s_of(0.0, pool.slots // 2)


def _told(pool: DescribedPool, jobs: int) -> str:
    return (
        f"{jobs} jobs for {pool.prefill_tokens_per_s:.0f} tokens/s read, steps of"
        f" {pool.step_s * 1000:.1f} + {pool.step_s_per_sequence * 1000:.2f} ms a sequence, parts"
        f" of {pool.chunk_tokens}"
    )
