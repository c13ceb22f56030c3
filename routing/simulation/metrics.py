"""What is told of a replay. Owns the figures and their definitions; knows nothing of how they are
shown."""

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from noidle.jobs import JobClass
from routing.simulation.described import Described
from routing.simulation.idle import idle_shares
from routing.simulation.replay import Outcome
from routing.simulation.request import Fate


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Seconds."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassFigures:
    """Seconds from arrival to the first token, and to the end."""

    jobs: int
    ttft_s: Percentiles
    finish_s: Percentiles


@dataclass(frozen=True, slots=True, kw_only=True)
class Goodput:
    """Jobs whose first token came within the bound."""

    ttft_bound_s: float
    # of all jobs, and of the interactive ones
    share: float
    interactive_share: float
    # such jobs by the makespan
    jobs_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolFigures:
    """Shares of the makespan."""

    jobs: int
    # an answer was made
    busy_share: float
    # see routing.simulation.idle
    idle_while_sooner_share: float


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionError:
    """Of a run's length as predicted at its start, by what it was."""

    p50: float
    p95: float
    # mean with its sign: above 0, runs end sooner than predicted
    bias: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainingFigures:
    """Of the training behind the trace, until the last answer ended."""

    tokens: float
    # the most that any schedule could have trained until then, and what share of it was
    leftover_tokens: float
    share: float
    # slices that made room before they were over
    pauses: int
    # the most it would have had in one pool all the time beside these very answers, since engines
    # give it no more than a share
    aboard_tokens: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One policy in one replay."""

    policy: str
    jobs: int
    # from the first arrival to the last end
    makespan_s: float
    classes: dict[str, ClassFigures]
    goodput: Goodput
    pools: dict[str, PoolFigures]
    # Jain's index over labels of the speed a label's jobs got: time alone on the fastest pool by
    # time in fact, on average; 1: all alike
    fairness_jain: float
    prediction_error: PredictionError | None
    # runs that made room for others, slices of training among them; and by class
    preemptions: int
    preempted: dict[str, int]
    # prompt tokens found in a prefix cache, by all
    reused_share: float
    training: TrainingFigures | None = None


def figures(policy: str, described: Described, outcome: Outcome, ttft_bound_s: float) -> Figures:
    """Reads the fates of all requests."""
    fates = outcome.fates
    makespan_s = max(fate.finish_s for fate in fates)
    preempted = _preempted(outcome)
    return Figures(
        policy=policy,
        jobs=len(fates),
        makespan_s=makespan_s,
        classes=_classes(fates),
        goodput=_goodput(fates, ttft_bound_s, makespan_s),
        pools=_pools(outcome, makespan_s),
        fairness_jain=_fairness(described, fates),
        prediction_error=_prediction_error(fates),
        preemptions=sum(preempted.values()),
        preempted=preempted,
        reused_share=sum(fate.reused for fate in fates) / sum(f.request.prompt for f in fates),
    )


def percentile(values: Iterable[float], share: float) -> float:
    """The smallest value that `share` of all do not exceed; NaN of none."""
    ordered = sorted(values)
    return ordered[max(math.ceil(share * len(ordered)) - 1, 0)] if ordered else math.nan


def _percentiles(values: Sequence[float]) -> Percentiles:
    return Percentiles(
        p50=percentile(values, 0.5), p95=percentile(values, 0.95), p99=percentile(values, 0.99)
    )


def _ttft_s(fate: Fate) -> float:
    return fate.first_s - fate.request.arrive_s


def _classes(fates: Sequence[Fate]) -> dict[str, ClassFigures]:
    found: dict[str, ClassFigures] = {}
    for job_class in JobClass:
        own = [fate for fate in fates if fate.request.job_class is job_class]
        if own:
            found[job_class.value] = ClassFigures(
                jobs=len(own),
                ttft_s=_percentiles([_ttft_s(fate) for fate in own]),
                finish_s=_percentiles([fate.finish_s - fate.request.arrive_s for fate in own]),
            )
    return found


def _goodput(fates: Sequence[Fate], ttft_bound_s: float, makespan_s: float) -> Goodput:
    urgent = [fate for fate in fates if fate.request.job_class is JobClass.INTERACTIVE]
    good = sum(_ttft_s(fate) <= ttft_bound_s for fate in fates)
    good_urgent = sum(_ttft_s(fate) <= ttft_bound_s for fate in urgent)
    return Goodput(
        ttft_bound_s=ttft_bound_s,
        share=good / len(fates),
        interactive_share=good_urgent / max(len(urgent), 1),
        jobs_per_s=good / makespan_s,
    )


def training_figures(outcome: Outcome, leftover_tokens: float) -> TrainingFigures:
    """Where nothing was left, the share is 1."""
    tokens = sum(pool.training.tokens for pool in outcome.pools)
    end_s = max(fate.finish_s for fate in outcome.fates)
    aboard = max(
        pool.paces.training_s(end_s) * (pool.described.train_tokens_per_s or 0.0)
        for pool in outcome.pools
    )
    return TrainingFigures(
        tokens=tokens,
        leftover_tokens=leftover_tokens,
        share=tokens / leftover_tokens if leftover_tokens else 1.0,
        aboard_tokens=aboard,
        pauses=sum(pool.training.pauses for pool in outcome.pools),
    )


def _preempted(outcome: Outcome) -> dict[str, int]:
    """Training is of the background."""
    counts = Counter({job_class.value: 0 for job_class in JobClass})
    for fate in outcome.fates:
        counts[fate.request.job_class.value] += len(fate.earlier)
    counts[JobClass.BACKGROUND.value] += sum(pool.training.pauses for pool in outcome.pools)
    return dict(counts)


def _pools(outcome: Outcome, makespan_s: float) -> dict[str, PoolFigures]:
    idle = idle_shares(outcome.pools, outcome.fates)
    return {
        pool.described.pool: PoolFigures(
            jobs=pool.runs,
            busy_share=pool.busy_s / makespan_s,
            idle_while_sooner_share=share,
        )
        for pool, share in zip(outcome.pools, idle, strict=True)
    }


def _fairness(described: Described, fates: Sequence[Fate]) -> float:
    """Jain, Chiu and Hawe 1984: (Σx)² / (n Σx²)."""
    kinds = [pool for pool, _ in described.kinds]
    speeds: dict[str, list[float]] = defaultdict(list)
    for fate in fates:
        one = fate.request
        alone_s = min(pool.work_s(one.prompt, one.output, 1) for pool in kinds)
        speeds[one.label].append(alone_s / (fate.finish_s - one.arrive_s))
    means = [sum(values) / len(values) for values in speeds.values()]
    return sum(means) ** 2 / (len(means) * sum(mean**2 for mean in means))


def _prediction_error(fates: Sequence[Fate]) -> PredictionError | None:
    errors = [
        (fate.predicted_s - fate.finish_s) / (fate.finish_s - fate.start_s)
        for fate in fates
        if fate.predicted_s is not None
    ]
    if not errors:
        return None
    sizes = [abs(error) for error in errors]
    return PredictionError(
        p50=percentile(sizes, 0.5),
        p95=percentile(sizes, 0.95),
        bias=sum(errors) / len(errors),
    )
