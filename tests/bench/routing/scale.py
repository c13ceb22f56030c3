"""A large simulation: how long 100,000 jobs on 1,000 hosts take. Owns the jobs and the cluster,
which are made here so that no trace is needed; knows nothing of bars."""

import random
import resource
import time
from collections.abc import Iterator
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from routing.simulation.described import Described, read_cluster
from routing.simulation.fitting import fit, loaded, released
from routing.simulation.lower_bound import lower_bound_s
from routing.simulation.metrics import Figures
from routing.simulation.schedulers import NOIDLE
from routing.simulation.study import Question, Setting, play
from routing.simulation.trace import Row

JOBS = 100_000
HOSTS = 1_000
LOAD = 0.8
CLUSTER = "four-mixed-hosts"
"""The hosts are as many copies of these four."""
COPIES = HOSTS // 4


class ScaleFigures(BaseModel):
    """One simulation, in a process of its own that has one thread."""

    model_config = ConfigDict(frozen=True)

    jobs: int
    hosts: int
    pools: int
    load: float
    # CPU time of making the jobs and their lower bound, and of playing them; and all by the clock
    prepare_cpu_s: float
    cpu_s: float
    wall_s: float
    peak_bytes: int
    figures: Figures


def measure_scale(jobs: int = JOBS, copies: int = COPIES) -> ScaleFigures:
    began_s, started_s = time.monotonic(), time.process_time()
    setting = _setting(jobs, copies)
    prepared_s = time.process_time()
    figures = play(setting, NOIDLE)
    return ScaleFigures(
        jobs=jobs,
        hosts=4 * copies,
        pools=len(setting.described.pools),
        load=LOAD,
        prepare_cpu_s=prepared_s - started_s,
        cpu_s=time.process_time() - prepared_s,
        wall_s=time.monotonic() - began_s,
        peak_bytes=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        figures=figures,
    )


def many(described: Described, copies: int) -> Described:
    """The same hosts so many times, each with a name of its own."""
    alike = [pool.model_copy(update={"count": copies}) for pool in described.pools]
    pools = tuple(one for pool in alike for one in pool.each())
    return described.model_copy(update={"pools": pools})


def conversation(count: int, rng: random.Random) -> Iterator[Row]:
    """Lengths spread as in public traces of conversations: prompts of 1,000 tokens in the median
    and 2,700 at the 90th percentile, answers of 130 and 420. One arrives a second on average."""
    now_s = 0.0
    for _ in range(count):
        yield Row(
            arrive_s=now_s,
            prompt=max(int(rng.lognormvariate(6.91, 0.77)), 1),
            output=max(int(rng.lognormvariate(4.87, 0.92)), 1),
        )
        now_s += rng.expovariate(1.0)


def _setting(jobs: int, copies: int) -> Setting:
    hosts = read_cluster(CLUSTER)
    fitted = fit(list(conversation(jobs, random.Random(0))), hosts)
    cluster = many(hosts, copies)
    capacity_s = lower_bound_s(cluster, released(fitted.requests).requests)
    moved = loaded(fitted.requests, LOAD, capacity_s)
    return Setting(
        question=Question(trace=Path("made here"), cluster=CLUSTER, load=LOAD),
        described=cluster,
        requests=moved.requests,
        capacity_s=capacity_s,
        lower_bound_s=lower_bound_s(cluster, moved.requests),
        words=fitted.words + moved.words,
    )
