"""What the cluster costs an engine: the same streams from the engine's own loop alone and from
the engine inside a cluster, in turns, on the same model with as many threads.

Owns the rounds; knows nothing of how either makes tokens."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from noidle import Client
from noidle.jobs import EngineName
from ops.metrics import cgroup
from ops.plan import PerEngine, UpOptions
from tests.bench.alone import MODEL
from tests.bench.clusters import cluster
from tests.bench.figures import Aim, Spread, ratios
from tests.bench.processes import ROOT

PATIENCE_S = 300.0
Streams = list[list[int]]


class EnginePlan(BaseModel):
    """How much of it."""

    model_config = ConfigDict(frozen=True)

    rounds: int = 4
    streams: int = 8
    tokens: int = 64
    # absent: all cores but one, as a pool takes them
    threads: int | None = None


class EngineFigures(BaseModel):
    """Tokens a second of all streams together, and how they compare."""

    model_config = ConfigDict(frozen=True)

    plan: EnginePlan
    parameters: int
    threads: int
    alone_tokens_per_s: Spread
    cluster_tokens_per_s: Spread
    # whether both gave the same tokens
    same_tokens: bool
    aims: tuple[Aim, ...]


class Alone:
    """The child that tests.bench.alone is."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.parameters = int(self._hear()["parameters"])

    def run(self, jobs: list[dict[str, Any]]) -> tuple[float, Streams]:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(jobs) + "\n")
        self._process.stdin.flush()
        answer = self._hear()
        return answer["seconds"], answer["tokens"]

    def _hear(self) -> dict[str, Any]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"the engine alone ended with status {self._process.wait()}")
        found: dict[str, Any] = json.loads(line)
        return found


def measure_engine(folder: Path, plan: EnginePlan, say: Callable[[str], None]) -> EngineFigures:
    threads = plan.threads or max(1, cgroup.cores() - 1)
    with ExitStack() as stack:
        say("making a model and starting the engine alone")
        alone = stack.enter_context(_alone(folder, threads, plan.streams))
        say("starting a cluster")
        options = UpOptions(
            engines=(EngineName.CPU,),
            flower=False,
            slots=PerEngine(every=plan.streams),
            threads=PerEngine(every=threads),
            preload=(MODEL,),
        )
        url = stack.enter_context(cluster(folder, options, say)).url
        client = stack.enter_context(Client(url))
        say("warming up")
        short = _jobs(plan.model_copy(update={"tokens": 8}), "warm")
        alone.run(short)
        _through(client, short)
        return _rounds(alone, client, plan, threads, say)


@contextmanager
def _alone(folder: Path, threads: int, slots: int) -> Iterator[Alone]:
    command = [sys.executable, "-m", "tests.bench.alone", str(folder), str(threads), str(slots)]
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        yield Alone(process)
    finally:
        process.kill()
        process.communicate()


def _rounds(
    alone: Alone, client: Client, plan: EnginePlan, threads: int, say: Callable[[str], None]
) -> EngineFigures:
    rates: dict[str, list[float]] = {"alone": [], "cluster": []}
    same = True
    for number in range(plan.rounds):
        jobs = _jobs(plan, str(number))
        ways = {
            "alone": lambda jobs=jobs: alone.run(jobs),
            "cluster": lambda jobs=jobs: _through(client, jobs),
        }
        given = {}
        for name in sorted(ways, reverse=number % 2 == 1):
            seconds, given[name] = ways[name]()
            rates[name].append(sum(map(len, given[name])) / seconds)
        same = same and given["alone"] == given["cluster"]
        told = ", ".join(f"{name} {found[-1]:.1f} tokens/s" for name, found in rates.items())
        say(f"round {number + 1} of {plan.rounds}: {told}")
    share = Aim(
        what="in the cluster / alone, tokens/s",
        found=ratios(rates["cluster"], rates["alone"]),
        unit="",
        at_least=0.95,
    )
    return EngineFigures(
        plan=plan,
        parameters=alone.parameters,
        threads=threads,
        alone_tokens_per_s=Spread.of(rates["alone"]),
        cluster_tokens_per_s=Spread.of(rates["cluster"]),
        same_tokens=same,
        aims=(share,),
    )


def _jobs(plan: EnginePlan, name: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{name}-{number}",
            "kind": "generate",
            "model": MODEL,
            "prompt": f"Stream {number}: keep neither the processor nor the accelerator idle. " * 2,
            "max_tokens": plan.tokens,
            "seed": number,
        }
        for number in range(plan.streams)
    ]


def _through(client: Client, jobs: list[dict[str, Any]]) -> tuple[float, Streams]:
    """Seconds from the first submission to the last result, and each job's tokens."""
    began_s = time.perf_counter()
    sent = client.submit_many(jobs)
    results = [job.result(PATIENCE_S) for job in sent]
    return time.perf_counter() - began_s, [list(result.tokens or ()) for result in results]
