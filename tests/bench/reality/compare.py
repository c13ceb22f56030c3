"""Real runs beside simulated ones. Owns the figures, the bars and the breakdown; knows nothing of
how a run is made."""

from collections.abc import Callable, Sequence

from pydantic import BaseModel, ConfigDict, computed_field

from routing.simulation.described import DescribedPool
from tests.bench.figures import Aim, Spread
from tests.bench.reality.lives import Life, Side, differences

BAR_PERCENT = 10.0


class Run(BaseModel):
    """One real run and the simulation of it."""

    model_config = ConfigDict(frozen=True)

    real: Side
    simulated: Side
    # job by job, real less simulated: medians of each stage and of the whole
    differences_s: tuple[float, ...]
    # jobs that both sides gave to the same pool
    same_pool_share: float
    # the client behind the trace, at most
    late_s: float
    # CPU time of the whole cluster, of all cores
    cpu_share: float
    # a decode step as told after the run, by what it was told before; absent: it was described
    slower: float | None = None

    @classmethod
    def of(
        cls, real: Sequence[Life], simulated: Sequence[Life], *, late_s: float, cpu_share: float
    ) -> "Run":
        where = {life.job: life.pool for life in simulated}
        return cls(
            real=Side.of(real),
            simulated=Side.of(simulated),
            differences_s=differences(real, simulated),
            same_pool_share=sum(where[life.job] == life.pool for life in real) / len(real),
            late_s=late_s,
            cpu_share=cpu_share,
        )

    def percent(self, figure: Callable[[Side], float]) -> float:
        """How far the real one is from the simulated one; above 0: it is more."""
        return 100 * (figure(self.real) / figure(self.simulated) - 1)


class PartFigures(BaseModel):
    """All runs of one part."""

    model_config = ConfigDict(frozen=True)

    name: str
    words: tuple[str, ...]
    # of the first run, where each run has its own
    pools: tuple[DescribedPool, ...]
    jobs: int
    runs: tuple[Run, ...]

    @computed_field  # type: ignore[prop-decorator]  # pydantic's own order of the two
    @property
    def aims(self) -> tuple[Aim, ...]:
        return (
            _aim(f"{self.name}: makespan", self.runs, lambda side: side.makespan_s),
            _aim(f"{self.name}: median finish", self.runs, lambda side: side.finish_p50_s),
        )


def _aim(what: str, runs: Sequence[Run], figure: Callable[[Side], float]) -> Aim:
    return Aim(
        what=f"{what}, off the simulation",
        found=Spread.of([abs(run.percent(figure)) for run in runs]),
        unit=" %",
        at_most=BAR_PERCENT,
    )


def told(run: Run) -> str:
    """In a line."""
    real, simulated = run.real, run.simulated
    return (
        f"makespan {real.makespan_s:.1f} s, simulated {simulated.makespan_s:.1f} s; median finish"
        f" {real.finish_p50_s:.2f} s, simulated {simulated.finish_p50_s:.2f} s"
    )


def numbered(say: Callable[[str], None], number: int) -> Callable[[str], None]:
    """Says of which run it is."""
    return lambda text: say(f"run {number + 1}: {text}")
