"""Which figures of a replay meet the router's bars."""

import dataclasses
import math
from typing import Any

import pytest

from routing.simulation.metrics import (
    ClassFigures,
    Figures,
    Goodput,
    Percentiles,
    PoolFigures,
    TrainingFigures,
)
from tests.bench.routing.bars import (
    Aim,
    Bar,
    arrival_bars,
    missed,
    released_bars,
    training_bars,
)


def replay(
    ttft_s: float = 1.0,
    in_time: float = 0.9,
    per_s: float = 5.0,
    idle: float = 0.0,
    makespan_s: float = 100.0,
    trained: float | None = None,
) -> Figures:
    first = Percentiles(p50=ttft_s / 2, p95=ttft_s, p99=ttft_s)
    training = None
    if trained is not None:
        training = TrainingFigures(tokens=1.0, leftover_tokens=2.0, share=trained, pauses=0)
    known: dict[str, Any] = {
        "classes": {"interactive": ClassFigures(jobs=5, ttft_s=first, finish_s=first)},
        "goodput": Goodput(
            ttft_bound_s=2.0, share=in_time, interactive_share=in_time, jobs_per_s=per_s
        ),
        "pools": {
            "cpu@a": PoolFigures(jobs=1, busy_share=1.0, idle_while_sooner_share=idle),
            "cuda@a": PoolFigures(jobs=9, busy_share=1.0, idle_while_sooner_share=0.0),
        },
        "makespan_s": makespan_s,
        "training": training,
    }
    # bars read no other
    others = {field.name: None for field in dataclasses.fields(Figures)}
    return Figures(**{**others, **known})


def aims(bars: list[Bar]) -> set[Aim]:
    return {bar.aim for bar in missed(bars)}


@pytest.mark.parametrize(
    ("mine", "wanted"),
    [
        (replay(), set()),
        (replay(ttft_s=1.019, in_time=0.883, per_s=4.91), set()),
        (replay(ttft_s=1.03), {Aim.TTFT}),
        (replay(in_time=0.88), {Aim.IN_TIME}),
        (replay(per_s=4.8), {Aim.PER_S}),
        (replay(idle=0.06), {Aim.IDLE}),
    ],
)
def test_a_policy_must_come_within_two_percent_of_the_best_rule(
    mine: Figures, wanted: set[Aim]
) -> None:
    rules = {"random": replay(ttft_s=9.0, in_time=0.5, per_s=1.0), "late-fcfs": replay()}
    assert aims(list(arrival_bars("here", {"noidle": mine, **rules}))) == wanted


def test_each_figure_is_held_against_the_rule_that_is_best_in_it() -> None:
    rules = {
        "random": replay(ttft_s=0.5, in_time=0.1, per_s=1.0),
        "static": replay(ttft_s=5.0, in_time=0.95, per_s=6.0),
    }
    bars = {bar.aim: bar for bar in arrival_bars("here", {"noidle": replay(), **rules})}
    assert bars[Aim.TTFT].found == 2.0
    assert "random" in bars[Aim.TTFT].of
    assert "static" in bars[Aim.IN_TIME].of
    assert bars[Aim.PER_S].found == pytest.approx(5 / 6)


def test_without_plain_rules_only_idling_is_judged() -> None:
    assert [bar.aim for bar in arrival_bars("here", {"noidle": replay()})] == [Aim.IDLE]


@pytest.mark.parametrize(("makespan_s", "met"), [(110.0, True), (111.0, False)])
def test_all_jobs_at_once_must_end_within_a_tenth_above_the_bound(
    makespan_s: float, met: bool
) -> None:
    bars = list(released_bars("here", {"noidle": replay(makespan_s=makespan_s)}, 100.0))
    assert (Aim.BY_BOUND not in aims(bars)) is met


@pytest.mark.parametrize(
    ("ttft_s", "share", "wanted"),
    [
        (1.1, 0.76, set()),
        (1.2, 0.76, {Aim.BESIDE_TRAINING}),
        (1.0, 0.7, {Aim.TRAINED}),
        (1.0, math.nan, {Aim.TRAINED}),
    ],
)
def test_training_may_hold_answers_up_by_a_tenth_and_must_use_what_is_left(
    ttft_s: float, share: float, wanted: set[Aim]
) -> None:
    bars = list(training_bars("here", replay(), replay(ttft_s=ttft_s, trained=share)))
    assert aims(bars) == wanted


def test_a_bar_whose_figure_is_not_there_is_missed() -> None:
    assert not Bar(where="here", aim=Aim.SCALE, found=None, at_most=1.0).met
    assert not Bar(where="here", aim=Aim.SCALE, found=math.nan, at_most=1.0).met
    assert Bar(where="here", aim=Aim.SCALE, found=1.0, at_most=1.0).model_dump()["met"]
