"""A trace on a cluster under some policies, from files to figures. Owns the order of steps; knows
nothing of how the figures are shown."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from noidle.errors import ConfigError
from routing.simulation.described import Described, read_cluster
from routing.simulation.fitting import fit, loaded, released
from routing.simulation.lower_bound import leftover_tokens, lower_bound_s
from routing.simulation.metrics import Figures, figures, training_figures
from routing.simulation.pool import SimulatedPool
from routing.simulation.replay import Replay
from routing.simulation.request import Request
from routing.simulation.schedulers import NOIDLE, Stage, make_scheduler
from routing.simulation.trace import read_trace

LONGEST_S = 1e9
"""Later arrivals are refused: the bound's solver and the clock of a replay become inexact."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """What is to be replayed."""

    trace: Path
    cluster: str
    # of the cluster's capacity; absent: arrivals as in the trace
    load: float | None = None
    # all at time 0, whatever the load
    release_all: bool = False
    # rows from the beginning; absent: all
    rows: int | None = None
    # an endless one in the background, behind the trace
    training: bool = False
    ttft_bound_s: float = 2.0
    seed: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all policies meet alike."""

    question: Question
    described: Described
    requests: Sequence[Request]
    # seconds in which all the work could be done at the earliest, were all of it there at once
    capacity_s: float
    # the same for the arrivals as they are
    lower_bound_s: float
    # what was done to the trace, in words
    words: list[str] = field(default_factory=list)


def prepare(question: Question) -> Setting:
    """Reads the files and fits one to the other.

    Raises:
        ConfigError: a file cannot be used.
    """
    described = read_cluster(question.cluster)
    if question.training and not described.trains:
        raise ConfigError(
            f"--training: no pool of --cluster {question.cluster} has train_tokens_per_s"
        )
    fitted = fit(read_trace(question.trace, question.rows), described)
    at_once = released(fitted.requests)
    capacity_s = lower_bound_s(described, at_once.requests)
    moved = fitted
    words = fitted.words
    if question.release_all:
        moved, words = at_once, words + at_once.words
    elif question.load is not None:
        moved = loaded(fitted.requests, question.load, capacity_s)
        words = words + moved.words
    else:
        words = [*words, "arrivals: as in the trace"]
    last_s = max(request.arrive_s for request in moved.requests)
    if last_s > LONGEST_S:
        raise ConfigError(
            f"--trace {question.trace}: the last request comes {last_s:g} s after the first: "
            f"allowed is at most {LONGEST_S:g}; a larger --load or --release-all brings them closer"
        )
    bound_s = capacity_s
    if not question.release_all:
        bound_s = lower_bound_s(described, moved.requests)
    return Setting(
        question=question,
        described=described,
        requests=moved.requests,
        capacity_s=capacity_s,
        lower_bound_s=bound_s,
        words=words,
    )


def answers(setting: Setting, policies: Sequence[str]) -> Iterator[Figures]:
    """One after the other, as each is done."""
    for policy in policies:
        yield play(setting, policy)


def play(setting: Setting, policy: str) -> Figures:
    """Training goes on behind noidle's policy only: the plain rules know of none.

    Raises:
        ConfigError: a policy that is not known.
    """
    described, question = setting.described, setting.question
    pools = [SimulatedPool(pool) for pool in described.pools]
    training = question.training and policy == NOIDLE
    stage = Stage(
        described=described,
        pools=pools,
        requests=setting.requests,
        seed=question.seed,
        training=training,
    )
    outcome = Replay(setting.requests, pools, make_scheduler(policy, stage)).run()
    found = figures(policy, described, outcome, question.ttft_bound_s)
    if not training:
        return found
    most = leftover_tokens(described, setting.requests, found.makespan_s)
    return replace(found, training=training_figures(outcome, most))
