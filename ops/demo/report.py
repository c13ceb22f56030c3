"""What the demo found, as a wire model and as tables. Measures nothing itself."""

from collections import Counter
from collections.abc import Iterable

from pydantic import BaseModel, ConfigDict
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from noidle.results import JobResult


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True)


class Quantiles(_Part):
    """Milliseconds over all answers."""

    p50: float
    p95: float


class Sample(_Part):
    """One answer to the same prompt."""

    prompt: str
    text: str
    revision: str | None


class RoutedJob(_Part):
    """One job and why it went where it went."""

    job: str
    job_class: str
    pool: str | None
    reasons: str


class Report(_Part):
    """All that `noidle demo` prints; losses in nats a token, by held-out text."""

    text: str
    stand_ins: tuple[str, ...]
    jobs: int
    failed: tuple[str, ...]
    jobs_by_engine: dict[str, int]
    revisions: tuple[str, ...]
    routed: tuple[RoutedJob, ...]
    ttft_ms: Quantiles | None
    tpot_ms: Quantiles | None
    training_steps: int | None
    held_out_loss_before: float | None
    held_out_loss: float | None
    unigram_loss: float | None
    before: Sample
    after: Sample
    cpu_idle_percent: float | None
    # by accelerator; empty where there is none
    device_idle_percent: dict[str, float]
    engine_busy_percent: dict[str, float]
    peak_bytes_by_pool: dict[str, int]
    peak_bytes_at_once: int | None
    # where Flower was, or is with --keep
    flower: str | None = None
    seconds: float

    @property
    def faults(self) -> list[str]:
        """Why the demo did not succeed; empty if it did."""
        faults = list(self.failed)
        if self.held_out_loss is None or self.unigram_loss is None:
            faults.append("the training gave no held-out loss")
        elif self.held_out_loss >= self.unigram_loss:
            faults.append(
                f"held-out loss {self.held_out_loss:.3f} does not beat the unigram model's "
                f"{self.unigram_loss:.3f}"
            )
        return faults


def quantiles(values: Iterable[float | None]) -> Quantiles | None:
    known = sorted(value for value in values if value is not None)
    if not known:
        return None
    return Quantiles(p50=_nearest_rank(known, 0.50), p95=_nearest_rank(known, 0.95))


def by_engine(results: Iterable[JobResult]) -> dict[str, int]:
    counts = Counter(_engine(result) for result in results if result.engine)
    return dict(sorted(counts.items()))


def fault(result: JobResult) -> str:
    """Which job did not succeed, and why."""
    why = f": {result.error.message}" if result.error else ""
    return f"job {result.id} is {result.state}{why}"


def _engine(result: JobResult) -> str:
    return f"{result.engine} (stand-in)" if result.stand_in else str(result.engine)


def _nearest_rank(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def draw(report: Report) -> RenderableType:
    """For a terminal."""
    return Group(
        _figures(report),
        *(_panel(f"one {job.job_class} job", job.reasons) for job in report.routed),
        _sample("before training", report.before),
        _sample("after training", report.after),
    )


def _sample(when: str, sample: Sample) -> Panel:
    return _panel(f"{when}: {sample.revision}", f"{sample.prompt} → {sample.text}")


def _panel(title: str, words: str) -> Panel:
    return Panel(Text(words), title=title, title_align="left", expand=False)


def _figures(report: Report) -> Table:
    table = Table(show_header=False, box=None, pad_edge=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in _rows(report):
        table.add_row(name, value)
    return table


def _rows(report: Report) -> Iterable[tuple[str, str]]:
    yield "text", report.text
    if report.stand_ins:
        yield "stand-ins", f"{', '.join(report.stand_ins)}: no accelerator, the CPU plays them"
    yield "jobs", f"{report.jobs}, {len(report.failed)} failed, in {report.seconds:.0f} s"
    yield "by engine", _pairs(report.jobs_by_engine, "")
    yield "revisions", f"{len(report.revisions)} answered: {', '.join(report.revisions)}"
    yield "first token", _latency(report.ttft_ms)
    yield "each further token", _latency(report.tpot_ms)
    yield "held-out loss", _loss(report)
    yield "CPU idle", _percent(report.cpu_idle_percent)
    devices = _pairs(_rounded(report.device_idle_percent), " %")
    yield "accelerator idle", devices or "no accelerator here"
    yield "engines busy", _pairs(_rounded(report.engine_busy_percent), " %")
    yield "peak working set", _peak(report)
    if report.flower:
        yield "Flower", report.flower


def _rounded(values: dict[str, float]) -> dict[str, int]:
    return {name: round(value) for name, value in values.items()}


def _pairs(values: dict[str, int], unit: str) -> str:
    return ", ".join(f"{name} {value}{unit}" for name, value in values.items())


def _latency(times: Quantiles | None) -> str:
    return "not measured" if times is None else f"p50 {times.p50:.1f} ms, p95 {times.p95:.1f} ms"


def _percent(value: float | None) -> str:
    return "not measured" if value is None else f"{value:.0f} %"


def _loss(report: Report) -> str:
    before, after, unigram = report.held_out_loss_before, report.held_out_loss, report.unigram_loss
    if before is None or after is None or unigram is None:
        return "not measured"
    return (
        f"{before:.3f} → {after:.3f} nats a token after {report.training_steps} steps; "
        f"a unigram model of the same text: {unigram:.3f}"
    )


def _peak(report: Report) -> str:
    mib = {name: size // 2**20 for name, size in report.peak_bytes_by_pool.items()}
    whole = report.peak_bytes_at_once
    at_once = f"; at once {whole // 2**20} MiB" if whole else ""
    return (_pairs(mib, " MiB") or "not measured") + at_once
