"""What became of a request on either side, in the same words: where its time went. Owns the stages
and their quantiles; knows nothing of how a side plays."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import BaseModel, ConfigDict

from noidle.results import JobResult
from routing.simulation.metrics import percentile
from routing.simulation.request import Fate

STAGES = ("held", "leased to started", "read", "decode")


@dataclass(frozen=True, slots=True, kw_only=True)
class Life:
    """Seconds; the stages follow each other."""

    job: str
    pool: str
    arrive_s: float
    # until it was leased, from there until its engine was told, to the first token, to the last
    held_s: float
    queued_s: float
    read_s: float
    decode_s: float
    # times it was given to a pool
    attempts: int = 1

    @property
    def stages_s(self) -> tuple[float, float, float, float]:
        return self.held_s, self.queued_s, self.read_s, self.decode_s

    @property
    def ttft_s(self) -> float:
        return self.held_s + self.queued_s + self.read_s

    @property
    def finish_s(self) -> float:
        return self.ttft_s + self.decode_s


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
    held_s, queued_s = (times.held_ms or 0.0) / 1000, (times.queued_ms or 0.0) / 1000
    ttft_s, total_s = (times.ttft_ms or 0.0) / 1000, (times.total_ms or 0.0) / 1000
    return Life(
        job=result.id,
        pool=result.pool or "",
        arrive_s=sent_s,
        held_s=held_s,
        queued_s=queued_s,
        # below 0 where it waited a second time behind its first token
        read_s=ttft_s - held_s - queued_s,
        decode_s=total_s - ttft_s,
        attempts=result.attempt or 1,
    )


def simulated_life(fate: Fate, pools: Sequence[str]) -> Life:
    request = fate.request
    return Life(
        job=request.id,
        pool=pools[fate.pool],
        arrive_s=request.arrive_s,
        held_s=fate.start_s - request.arrive_s,
        queued_s=0.0,
        read_s=fate.first_s - fate.start_s,
        decode_s=fate.finish_s - fate.first_s,
    )


def differences(real: Sequence[Life], simulated: Sequence[Life]) -> tuple[float, ...]:
    """Job by job, real less simulated: the median of each stage, and of the whole."""
    other = {life.job: life for life in simulated}

    def middle(part: Callable[[Life], float]) -> float:
        return percentile([part(one) - part(other[one.job]) for one in real], 0.5)

    stages = [middle(lambda life, at=at: life.stages_s[at]) for at in range(len(STAGES))]
    return *stages, middle(lambda life: life.finish_s)
