"""noidle simulate: a trace replayed in virtual time through the policy, beside plain rules."""

import dataclasses
import math
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from noidle.errors import ConfigError
from ops.commands import output
from ops.commands.options import Json
from routing.simulation.metrics import Figures, TrainingFigures
from routing.simulation.schedulers import NOIDLE, POLICIES
from routing.simulation.study import Question, Setting, answers, prepare

ALL = "all"
POOLS_SHOWN = 24
_URGENT = "interactive"


def simulate(
    trace: Annotated[
        Path,
        typer.Option(help="Azure LLM inference CSV or Mooncake JSON lines; the format is seen."),
    ],
    cluster: Annotated[
        str,
        typer.Option(
            metavar="NAME_OR_FILE", help="one-cpu-one-gpu, four-mixed-hosts, or a TOML file."
        ),
    ] = "one-cpu-one-gpu",
    policy: Annotated[
        list[str] | None,
        typer.Option(help=f"{', '.join(POLICIES)}, or all. May be given several times."),
    ] = None,
    load: Annotated[
        float | None,
        typer.Option(help="Scale arrivals to this share of the cluster's capacity."),
    ] = None,
    release_all: Annotated[
        bool, typer.Option("--release-all", help="All jobs come at time 0.")
    ] = False,
    training: Annotated[
        bool,
        typer.Option("--training", help="An endless training in the background, for noidle only."),
    ] = False,
    rows: Annotated[int | None, typer.Option(min=1, help="Only the first rows.")] = None,
    ttft_bound: Annotated[
        float, typer.Option(min=0.0, help="Goodput counts first tokens within so many seconds.")
    ] = 2.0,
    seed: Annotated[int, typer.Option(help="For the rules that draw lots.")] = 0,
    json: Json = False,
) -> None:
    """Replay a trace of requests on a described cluster, in virtual time.

    Needs no cluster. Shows the makespan with its lower bound, and waits by class.
    """
    _check(load, release_all, policy or [])
    question = Question(
        trace=trace,
        cluster=cluster,
        load=load,
        release_all=release_all,
        training=training,
        rows=rows,
        ttft_bound_s=ttft_bound,
        seed=seed,
    )
    setting = prepare(question)
    named = list(POLICIES) if policy and ALL in policy else policy or [NOIDLE]
    _tell(setting, list(answers(setting, named)), json=json)


def _tell(setting: Setting, found: list[Figures], *, json: bool) -> None:
    if json:
        records = [_record(setting, one) for one in found]
        output.as_json(records[0] if len(records) == 1 else records)
    else:
        output.draw(*_shown(setting, found))


def _check(load: float | None, release_all: bool, policies: list[str]) -> None:
    if load is not None and not (math.isfinite(load) and load > 0):
        raise ConfigError(f"--load {load}: allowed is a number above 0, such as 0.8")
    if load is not None and release_all:
        raise ConfigError("--load and --release-all exclude each other")
    wrong = next((name for name in policies if name not in (*POLICIES, ALL)), None)
    if wrong is not None:
        raise ConfigError(f"--policy {wrong}: allowed are {', '.join(POLICIES)}, and {ALL}")


def _record(setting: Setting, found: Figures) -> dict[str, Any]:
    question = setting.question
    return {
        "trace": question.trace.name,
        "cluster": question.cluster,
        "load": question.load,
        "release_all": question.release_all,
        "rows": question.rows,
        "seed": question.seed,
        "fitting": setting.words,
        "capacity_s": setting.capacity_s,
        "lower_bound_s": setting.lower_bound_s,
        **dataclasses.asdict(found),
    }


def _shown(setting: Setting, found: list[Figures]) -> list[Any]:
    question = setting.question
    head = [
        f"{question.trace.name} on {question.cluster}: {len(setting.requests)} jobs, "
        f"lower bound {setting.lower_bound_s:,.1f} s",
        *(f"  {words}" for words in setting.words),
    ]
    parts: list[Any] = ["\n".join(head), "", _policies(setting, found)]
    if len(found) == 1:
        parts += ["", _classes(found[0]), "", _pools(found[0])]
        if found[0].training is not None:
            parts += ["", _training(found[0].training)]
    return parts


def _policies(setting: Setting, found: list[Figures]) -> Table:
    table = _table(
        *("policy", "makespan s", "by bound", "interactive TTFT p50", "p99", "finish p99"),
        *(f"TTFT ≤ {setting.question.ttft_bound_s:g} s", "interactive", "idle at most"),
        *("fairness", "prediction off by"),
    )
    for one in found:
        urgent = one.classes.get(_URGENT)
        idle = max(pool.idle_while_sooner_share for pool in one.pools.values())
        table.add_row(
            one.policy,
            f"{one.makespan_s:,.1f}",
            f"{one.makespan_s / setting.lower_bound_s:.3f}",
            f"{urgent.ttft_s.p50:,.2f}" if urgent else "–",
            f"{urgent.ttft_s.p99:,.2f}" if urgent else "–",
            f"{urgent.finish_s.p99:,.2f}" if urgent else "–",
            f"{one.goodput.share:.1%}",
            f"{one.goodput.interactive_share:.1%}",
            f"{idle:.1%}",
            f"{one.fairness_jain:.3f}",
            f"{one.prediction_error.p50:.0%}" if one.prediction_error else "–",
        )
    return table


def _classes(one: Figures) -> Table:
    table = _table(
        *("class", "jobs", "TTFT p50 s", "p95", "p99", "finish p50 s", "p95", "p99"),
        "preempted",
    )
    for name, own in one.classes.items():
        times = (own.ttft_s, own.finish_s)
        cells = [f"{value:,.2f}" for at in times for value in (at.p50, at.p95, at.p99)]
        table.add_row(name, f"{own.jobs:,}", *cells, f"{one.preempted[name]:,}")
    return table


def _training(one: TrainingFigures) -> str:
    return (
        f"training: {one.tokens:,.0f} tokens, {one.share:.1%} of the {one.leftover_tokens:,.0f} "
        f"that any schedule could have trained; made room {one.pauses:,} times"
    )


def _pools(one: Figures) -> Table:
    table = _table("pool", "jobs", "busy", "idle while a waiting job would have ended sooner there")
    for name, pool in list(one.pools.items())[:POOLS_SHOWN]:
        idle = f"{pool.idle_while_sooner_share:.1%}"
        table.add_row(name, f"{pool.jobs:,}", f"{pool.busy_share:.1%}", idle)
    if len(one.pools) > POOLS_SHOWN:
        table.add_row(f"and {len(one.pools) - POOLS_SHOWN:,} more; --json has all", "", "", "")
    return table


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False)
    for place, column in enumerate(columns):
        table.add_column(column, justify="right" if place else "left")
    return table
