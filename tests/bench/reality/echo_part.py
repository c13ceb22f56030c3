"""Pools that run the echo engine at described rates, on several hosts by name. Owns the shape of
the cluster; how fast it is follows from the slice."""

import time
from collections.abc import Callable, Sequence
from pathlib import Path

from ops.metrics import cgroup
from routing.simulation.described import MODEL, Described, DescribedPool
from routing.simulation.trace import Row
from tests.acceptance.described import program
from tests.bench.folder import temporary_folder
from tests.bench.processes import cpu_s
from tests.bench.reality.compare import PartFigures, Run, numbered, told
from tests.bench.reality.player import Player
from tests.bench.reality.prompts import echo_prompt
from tests.bench.reality.site import PoolPlan, site
from tests.bench.reality.slices import Slice, fit_cluster
from tests.bench.reality.virtual import simulate

LOAD = 0.8
SHAPE = Described(
    context=8192,
    pools=(
        DescribedPool(
            pool="cuda@one",
            reason="A card: many sequences, and prompts read twenty times as fast as by cores.",
            slots=32,
            kv_tokens=120_000,
            prefill_tokens_per_s=20_000,
            step_s=0.03,
            step_s_per_sequence=0.0004,
            chunk_tokens=1024,
            prefix_cache_tokens=0,
        ),
        DescribedPool(
            pool="cpu@one",
            reason="The cores beside that card.",
            slots=8,
            kv_tokens=60_000,
            prefill_tokens_per_s=1_500,
            step_s=0.04,
            step_s_per_sequence=0.003,
            chunk_tokens=256,
            prefix_cache_tokens=0,
        ),
        DescribedPool(
            pool="cpu@two",
            reason="An older host without a card.",
            slots=4,
            kv_tokens=40_000,
            prefill_tokens_per_s=700,
            step_s=0.06,
            step_s_per_sequence=0.006,
            chunk_tokens=128,
            prefix_cache_tokens=0,
        ),
    ),
)


def measure_echo(
    rows: Sequence[Row], seconds: float, count: int, say: Callable[[str], None]
) -> PartFigures:
    slice_ = fit_cluster(rows, SHAPE, LOAD, seconds)
    runs = []
    for number in range(count):
        with temporary_folder() as folder:
            runs.append(_run(folder, slice_, numbered(say, number)))
        say(f"run {number + 1} of {count}: {told(runs[-1])}")
    return PartFigures(
        name="echo",
        words=tuple(slice_.words),
        pools=slice_.described.pools,
        jobs=len(slice_.requests),
        runs=tuple(runs),
    )


def _run(folder: Path, slice_: Slice, say: Callable[[str], None]) -> Run:
    plans = [_plan(folder, pool, slice_.described.context) for pool in slice_.described.pools]
    with site(folder, plans) as up:
        # the router is there, and knows the pools
        up.client.generate("one two", model=MODEL, max_tokens=2).result(60)
        player = Player(up.client, MODEL, lambda one: echo_prompt(one.number, one.prompt), say)
        used_s, began_s = cpu_s(), time.monotonic()
        played = player.play(slice_.requests)
        share = (cpu_s() - used_s) / (time.monotonic() - began_s) / cgroup.cores()
    return Run.of(played.lives, simulate(slice_), late_s=played.late_s, cpu_share=share)


def _plan(folder: Path, pool: DescribedPool, context: int) -> PoolPlan:
    declared = program(
        folder,
        f"echo-{pool.pool.replace('@', '-')}",
        models=MODEL,
        context=context,
        kv_tokens=pool.kv_tokens,
        prefill_tokens_per_s=pool.prefill_tokens_per_s,
        step_s=pool.step_s,
        step_s_per_sequence=pool.step_s_per_sequence,
        chunk_tokens=pool.chunk_tokens,
    )
    return PoolPlan(name=pool.pool, slots=pool.slots, program=str(declared))
