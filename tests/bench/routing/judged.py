"""The bars of each part. Owns which figures of a part are held against which bar; knows nothing of
how they are taken or shown."""

from collections.abc import Iterator, Sequence

from routing.simulation.schedulers import NOIDLE
from tests.bench.routing.bars import (
    DECISION_MS,
    SCALE_S,
    Aim,
    Bar,
    arrival_bars,
    released_bars,
    training_bars,
)
from tests.bench.routing.commands import CommandFigures
from tests.bench.routing.decision import DecisionFigures
from tests.bench.routing.replays import BESIDE_TRAINING, Replayed
from tests.bench.routing.scale import ScaleFigures


def judge_replay(one: Replayed) -> Iterator[Bar]:
    """None where noidle's own replay failed: the report tells of the fault."""
    mine, where = one.figures.get(NOIDLE), one.place.words
    if mine is None:
        return
    if one.place.load is None:
        yield from released_bars(where, one.figures, one.lower_bound_s)
        return
    yield from arrival_bars(where, one.figures)
    beside = one.figures.get(BESIDE_TRAINING)
    if beside is not None:
        yield from training_bars(where, mine, beside)


def judge_decision(figures: DecisionFigures) -> Iterator[Bar]:
    found, deep = figures.shallow, figures.deep
    told = f"p50 {found.p50_ms:.2f}" + (f"; deep looks: p99 {deep.p99_ms:.2f}" if deep else "")
    yield Bar(
        where=f"{figures.pools:,} pools, {figures.held:,} held jobs",
        aim=Aim.DECISION,
        found=found.p99_ms,
        at_most=DECISION_MS,
        of=told,
    )


def judge_scale(figures: ScaleFigures) -> Iterator[Bar]:
    yield Bar(
        where=f"{figures.jobs:,} jobs on {figures.hosts:,} hosts",
        aim=Aim.SCALE,
        # others may use the machine; this process has one thread
        found=figures.prepare_cpu_s + figures.cpu_s,
        at_most=SCALE_S,
        of=f"{figures.wall_s:.0f} s by the clock",
    )


def judge_life(found: Sequence[CommandFigures]) -> Iterator[Bar]:
    """The same commands, whatever waits and whatever is published."""
    counts = [one.commands for one in found]
    yield Bar(
        where=", ".join(f"{one.held:,} held and {one.pools} pools" for one in found),
        aim=Aim.LIFE,
        found=max(counts) / min(counts),
        at_most=1.0,
        of=f"{min(counts)} to {max(counts)}",
    )
