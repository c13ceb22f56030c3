"""What became of a request on either side, in the same words: where its time went. Owns the stages
and their quantiles; knows nothing of how a side plays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import BaseModel, ConfigDict

from noidle.results import JobResult
from routing.simulation.metrics import percentile
from routing.simulation.request import Fate

STAGES = ("held", "leased to started", "read", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Seconds, from the arrival on."""

    job: str
    # the last one
    pool: str
    arrive_s: float
    ttft_s: float
    finish_s: float
    # until it was leased, and from there until its engine was told; all rounds together
    held_s: float
    queued_s: float = 0.0
    # times it was given to a pool
    attempts: int = 1

    @property
    def read_s(self) -> float:
        """To the first token; of one that was evicted behind it, at most that."""
        return max(0.0, self.ttft_s - self.held_s - self.queued_s)

    @property
    def stages_s(self) -> tuple[float, float, float, float]:
        """They follow each other, but for evictions."""
        before_s = self.held_s + self.queued_s + self.read_s
        return self.held_s, self.queued_s, self.read_s, self.finish_s - before_s


class Side(BaseModel):
    """One side of one run."""

    model_config = ConfigDict(frozen=True)

    # from the first arrival to the last end
    makespan_s: float
    finish_p50_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    # medians, in the order of STAGES
    stages_s: tuple[float, ...]
    # by pool
    jobs: dict[str, int]
    # runs that were taken out of a pool before they ended
    evicted: int

    @classmethod
    def of(cls, lives: Sequence[Life]) -> "Side":
        def middle(values: Sequence[float], share: float = 0.5) -> float:
            return percentile(values, share)

        pools = [life.pool for life in lives]
        first_s = min(life.arrive_s for life in lives)
        ttft_s = [life.ttft_s for life in lives]
        return cls(
            makespan_s=max(life.arrive_s + life.finish_s for life in lives) - first_s,
            finish_p50_s=middle([life.finish_s for life in lives]),
            ttft_p50_s=middle(ttft_s),
            ttft_p99_s=middle(ttft_s, 0.99),
            stages_s=tuple(
                middle([life.stages_s[stage] for life in lives]) for stage in range(len(STAGES))
            ),
            jobs={pool: pools.count(pool) for pool in sorted(set(pools))},
            evicted=sum(life.attempts - 1 for life in lives),
        )


def real_life(result: JobResult, sent_s: float) -> Life:
    """`sent_s`: when the client sent it, from the first arrival on."""
    times = result.times
    return Life(
        job=result.id,
        pool=result.pool or "",
        arrive_s=sent_s,
        ttft_s=(times.ttft_ms or 0.0) / 1000,
        finish_s=(times.total_ms or 0.0) / 1000,
        held_s=(times.held_ms or 0.0) / 1000,
        queued_s=(times.queued_ms or 0.0) / 1000,
        attempts=result.attempt or 1,
    )


def simulated_life(fate: Fate, pools: Sequence[str]) -> Life:
    request = fate.request
    return Life(
        job=request.id,
        pool=pools[fate.pool],
        arrive_s=request.arrive_s,
        ttft_s=fate.first_s - request.arrive_s,
        finish_s=fate.finish_s - request.arrive_s,
        held_s=sum(stint.start_s - stint.since_s for stint in fate.stints),
        attempts=len(fate.stints),
    )


def differences(real: Sequence[Life], simulated: Sequence[Life]) -> tuple[float, ...]:
    """Job by job, real less simulated: the median of each stage, and of the whole."""
    other = {life.job: life for life in simulated}

    def middle(part: Callable[[Life], float]) -> float:
        return percentile([part(one) - part(other[one.job]) for one in real], 0.5)

    stages = [middle(partial(_stage_s, at)) for at in range(len(STAGES))]
    return *stages, middle(lambda life: life.finish_s)


def _stage_s(at: int, life: Life) -> float:
    return life.stages_s[at]
