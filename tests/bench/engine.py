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

import psutil
from pydantic import BaseModel, ConfigDict

from noidle import Client
from noidle.jobs import EngineName
from ops.metrics import cgroup
from ops.plan import PerEngine, UpOptions
from tests.bench.clusters import cluster
from tests.bench.figures import Aim, Spread, ratios, rounds
from tests.bench.model import CONFIG, MODEL
from tests.bench.processes import ROOT, cpu_s

PATIENCE_S = 300.0
Streams = list[list[int]]


class EnginePlan(BaseModel):
    """How much of it."""

    model_config = ConfigDict(frozen=True)

    rounds: int = 8
    streams: int = 8
    tokens: int = 32
    # absent: all cores but one, as a pool takes them
    threads: int | None = None
    # no further round begins after this
    budget_s: float = 100.0


class EngineFigures(BaseModel):
    """Tokens a second of all streams together, and how they compare."""

    model_config = ConfigDict(frozen=True)

    plan: EnginePlan
    parameters: int
    threads: int
    alone_tokens_per_s: Spread
    cluster_tokens_per_s: Spread
    # CPU time of the engine's process alone, of the one in the cluster, and of everything else
    # there, the producer among them: tells more than the clock where others use the machine
    alone_cpu_ms_a_token: Spread
    engine_cpu_ms_a_token: Spread
    around_cpu_ms_a_token: Spread
    # whether both gave the same tokens
    same_tokens: bool
    aims: tuple[Aim, ...]


class Alone:
    """The child that tests.bench.alone is."""

    def __init__(self, process: "subprocess.Popen[str]") -> None:
        self._process = process
        self.pid = process.pid

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
        say(f"making a model of {CONFIG.parameters / 1e6:.1f} M parameters")
        subprocess.run(
            [sys.executable, "-m", "tests.bench.model", str(folder)], cwd=ROOT, check=True
        )
        say("starting the engine alone")
        alone = stack.enter_context(_alone(folder, threads, plan.streams))
        say("starting a cluster")
        options = UpOptions(
            engines=(EngineName.CPU,),
            flower=False,
            slots=PerEngine(every=plan.streams),
            threads=PerEngine(every=threads),
            preload=(MODEL,),
        )
        file = stack.enter_context(cluster(folder, options, say))
        client = stack.enter_context(Client(file.url))
        say("warming up")
        short = _jobs(plan.model_copy(update={"tokens": 8}), "warm")
        alone.run(short)
        _through(client, short)
        (engine,) = psutil.Process(file.pids["cpu"]).children()
        return Rounds(alone, client, engine.pid, plan, threads).run(say)


@contextmanager
def _alone(folder: Path, threads: int, slots: int) -> Iterator[Alone]:
    arguments = (str(folder), MODEL, str(threads), str(slots))
    command = [sys.executable, "-m", "tests.bench.alone", *arguments]
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


class Rounds:
    """Both ways in turns, and what each cost."""

    def __init__(
        self, alone: Alone, client: Client, engine_pid: int, plan: EnginePlan, threads: int
    ) -> None:
        self._alone = alone
        self._client = client
        self._engine_pid = engine_pid
        self._plan = plan
        self._threads = threads
        self._rates: dict[str, list[float]] = {"alone": [], "cluster": []}
        self._costs: dict[str, list[float]] = {"alone": [], "engine": [], "around": []}

    def run(self, say: Callable[[str], None]) -> EngineFigures:
        same = True
        for number in rounds(self._plan.rounds, self._plan.budget_s):
            jobs = _jobs(self._plan, str(number))
            turns = (self._measure_alone, self._measure_cluster)
            one, other = [turn(jobs) for turn in turns[:: -1 if number % 2 else 1]]
            same = same and one == other
            told = ", ".join(f"{name} {rates[-1]:.1f}/s" for name, rates in self._rates.items())
            say(f"round {number + 1} of {self._plan.rounds}: tokens {told}")
        return self._figures(same)

    def _measure_alone(self, jobs: list[dict[str, Any]]) -> Streams:
        used_s = cpu_s(self._alone.pid)
        seconds, streams = self._alone.run(jobs)
        count = sum(map(len, streams))
        self._rates["alone"].append(count / seconds)
        self._costs["alone"].append((cpu_s(self._alone.pid) - used_s) / count * 1000)
        return streams

    def _measure_cluster(self, jobs: list[dict[str, Any]]) -> Streams:
        all_s, engine_s = cpu_s(), cpu_s(self._engine_pid)
        seconds, streams = _through(self._client, jobs)
        all_s, engine_s = cpu_s() - all_s, cpu_s(self._engine_pid) - engine_s
        count = sum(map(len, streams))
        self._rates["cluster"].append(count / seconds)
        self._costs["engine"].append(engine_s / count * 1000)
        self._costs["around"].append((all_s - engine_s) / count * 1000)
        return streams

    def _figures(self, same: bool) -> EngineFigures:
        rates, costs = self._rates, self._costs
        share = Aim(
            what="in the cluster / alone, tokens/s",
            found=ratios(rates["cluster"], rates["alone"]),
            unit="",
            at_least=0.95,
        )
        return EngineFigures(
            plan=self._plan,
            parameters=CONFIG.parameters,
            threads=self._threads,
            alone_tokens_per_s=Spread.of(rates["alone"]),
            cluster_tokens_per_s=Spread.of(rates["cluster"]),
            alone_cpu_ms_a_token=Spread.of(costs["alone"]),
            engine_cpu_ms_a_token=Spread.of(costs["engine"]),
            around_cpu_ms_a_token=Spread.of(costs["around"]),
            same_tokens=same,
            aims=(share,),
        )


def _jobs(plan: EnginePlan, name: str) -> list[dict[str, Any]]:
    return [
        {
            "id": f"{name}-{number}",
            "kind": "generate",
            "model": MODEL,
            # short: what is measured is decoding, all streams at once
            "prompt": f"Stream {number}",
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
