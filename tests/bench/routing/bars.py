"""What was aimed at, and whether it was reached. Owns the bars and which figure each of them is
held against; knows nothing of how figures are taken or shown."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from pydantic import BaseModel, ConfigDict, computed_field

from routing.simulation.metrics import Figures
from routing.simulation.schedulers import NOIDLE, POLICIES

BY_BOUND = 1.10
NEAR_BEST = 0.02
"""Within so much of the best plain rule is as good as it."""
IDLE_SHARE = 0.05
TTFT_BESIDE_TRAINING = 1.1
TRAINING_SHARE = 0.76
DECISION_MS = 2.0
SCALE_S = 600.0
RULES = tuple(name for name in POLICIES if name != NOIDLE)


class Aim(StrEnum):
    """What each bar is about."""

    BY_BOUND = "makespan by lower bound"
    IDLE = "a pool's share of idling while a waiting job would have ended sooner there"
    TTFT = "interactive TTFT p99 by the best rule's"
    IN_TIME = "interactive share in time by the best rule's"
    PER_S = "jobs in time a second by the best rule's"
    BESIDE_TRAINING = "interactive TTFT p99 beside training by that without"
    TRAINED = "training by what the leftover allows"
    DECISION = "CPU ms of a decision, p99"
    SCALE = "CPU seconds of a simulation"
    LIFE = "Redis commands of a job's life, most by fewest"


class Bar(BaseModel):
    """One figure, and the least or the most that was wanted of it."""

    model_config = ConfigDict(frozen=True)

    # what was measured
    where: str
    aim: Aim
    # absent: it could not be taken
    found: float | None
    at_least: float | None = None
    at_most: float | None = None
    # the figures that it was made of
    of: str = ""

    @computed_field  # type: ignore[prop-decorator]  # pydantic's own order of the two
    @property
    def met(self) -> bool:
        if self.found is None or math.isnan(self.found):
            return False
        low = self.at_least is None or self.found >= self.at_least
        return low and (self.at_most is None or self.found <= self.at_most)

    @property
    def wanted(self) -> str:
        return f"≤ {self.at_most:g}" if self.at_least is None else f"≥ {self.at_least:g}"


def missed(bars: Iterable[Bar]) -> list[Bar]:
    return [bar for bar in bars if not bar.met]


def released_bars(where: str, found: Mapping[str, Figures], lower_bound_s: float) -> Iterator[Bar]:
    """All jobs came at time 0."""
    mine = found[NOIDLE]
    yield Bar(
        where=where,
        aim=Aim.BY_BOUND,
        found=mine.makespan_s / lower_bound_s,
        at_most=BY_BOUND,
        of=f"{mine.makespan_s:.1f} s, bound {lower_bound_s:.1f} s",
    )
    yield _idle(where, mine)


def arrival_bars(where: str, found: Mapping[str, Figures]) -> Iterator[Bar]:
    """Jobs came over time: noidle beside the best plain rule, another one for each figure."""
    mine = found[NOIDLE]
    rules = {name: one for name, one in found.items() if name in RULES}
    if rules:
        yield _near_best(where, Aim.TTFT, mine, rules, urgent_p99_s, more=False)
        yield _near_best(where, Aim.IN_TIME, mine, rules, _share_in_time)
        yield _near_best(where, Aim.PER_S, mine, rules, _in_time_per_s)
    yield _idle(where, mine)


def training_bars(where: str, without: Figures, beside: Figures) -> Iterator[Bar]:
    """`beside` an endless training."""
    with_s, without_s = urgent_p99_s(beside), urgent_p99_s(without)
    yield Bar(
        where=where,
        aim=Aim.BESIDE_TRAINING,
        found=with_s / without_s if without_s else None,
        at_most=TTFT_BESIDE_TRAINING,
        of=f"{with_s:.2f} s, without {without_s:.2f} s",
    )
    training = beside.training
    assert training is not None
    yield Bar(
        where=where,
        aim=Aim.TRAINED,
        found=training.share,
        at_least=TRAINING_SHARE,
        of=f"{training.tokens:,.0f} of {training.leftover_tokens:,.0f}, {training.pauses} pauses",
    )


def urgent_p99_s(figures: Figures) -> float:
    """NaN where a trace has no interactive job."""
    own = figures.classes.get("interactive")
    return own.ttft_s.p99 if own else math.nan


def _share_in_time(figures: Figures) -> float:
    return figures.goodput.interactive_share


def _in_time_per_s(figures: Figures) -> float:
    return figures.goodput.jobs_per_s


def _near_best(
    where: str,
    aim: Aim,
    mine: Figures,
    rules: Mapping[str, Figures],
    figure: Callable[[Figures], float],
    *,
    more: bool = True,
) -> Bar:
    """`more` of it is better, or less."""
    own, theirs = figure(mine), {name: figure(one) for name, one in rules.items()}
    best = (max if more else min)(theirs, key=theirs.__getitem__)
    return Bar(
        where=where,
        aim=aim,
        found=own / theirs[best] if theirs[best] else None,
        at_least=1 - NEAR_BEST if more else None,
        at_most=None if more else 1 + NEAR_BEST,
        of=f"{own:.3g}, {best} {theirs[best]:.3g}",
    )


def _idle(where: str, figures: Figures) -> Bar:
    shares = {name: pool.idle_while_sooner_share for name, pool in figures.pools.items()}
    pool = max(shares, key=shares.__getitem__)
    return Bar(where=where, aim=Aim.IDLE, found=shares[pool], at_most=IDLE_SHARE, of=pool)
