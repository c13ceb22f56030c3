"""The cluster in tables and words, for a terminal. Absent figures are shown as a dash."""

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime

from rich.table import Table
from rich.text import Text

from noidle.results import JobState, JobStatus
from noidle.snapshot import DeviceDetail, PoolDetail, PoolSnapshot, PoolState, Pressure
from ops.child import Child
from ops.overview import Overview

_GIB = 1 << 30
_MIB = 1 << 20
_STATES = {
    PoolState.READY: "green",
    PoolState.STARTING: "yellow",
    PoolState.DRAINING: "yellow",
    PoolState.FAILED: "red",
}
_JOBS = {JobState.DONE: "green", JobState.FAILED: "red", JobState.RUNNING: "cyan"}


def summary(overview: Overview) -> Text:
    """Router, held jobs by class, what is closed."""
    held = ", ".join(f"{count} {name}" for name, count in overview.held.items())
    text = Text()
    if overview.router is None:
        text.append("no router decides: held jobs stay held", style="red")
    else:
        text.append(f"router {overview.router}")
    text.append(f"   in flight {overview.in_flight}   held {held or 'none'}")
    if overview.arriving:
        text.append(f"   arriving {overview.arriving}")
    if overview.closed:
        text.append(f"\nno job is accepted: {overview.closed}", style="red")
    return text


def overview_table(overview: Overview) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("pool", "device", "state"):
        table.add_column(name)
    for name in ("in flight", "queued", "cpu", "device use", "memory", "prefill/s", "step"):
        table.add_column(name, justify="right")
    table.add_column("models")
    for pool in overview.pools:
        detail = overview.details.get(pool.pool)
        table.add_row(
            pool.pool,
            f"{pool.device}{' (stand-in)' if pool.stand_in else ''}",
            _state(pool),
            f"{pool.in_flight}/{pool.slots}",
            str(overview.queued.get(pool.pool, 0)),
            _cpu(detail),
            _device_use(detail),
            _memory(detail),
            _rate(pool.rates.prefill_tokens_per_s),
            _step(pool),
            _models(pool),
        )
    return table


def host_table(overview: Overview) -> Table:
    """One row a host, from the newest details of any of its pools."""
    hosts = {detail.host.host: detail.host for detail in overview.details.values()}
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("host")
    for name in ("cores", "cpu", "load", "memory available", "swap", "stall cpu/mem/io"):
        table.add_column(name, justify="right")
    for name, host in sorted(hosts.items()):
        available, total = host.memory_available_bytes, host.memory_total_bytes
        stalls = (host.stall_cpu_percent, host.stall_memory_percent, host.stall_io_percent)
        table.add_row(
            name,
            str(host.cores),
            _percent(host.cpu_percent),
            f"{host.load[0]:.1f}" if host.load else "–",
            f"{_size(available)} of {_size(total)}",
            _size(host.swap_used_bytes),
            " ".join(_percent(stall) for stall in stalls),
        )
    return table


def process_table(children: Mapping[str, Child], now_s: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("process", "pid", "state", "up", "restarts", "last end"):
        table.add_column(name)
    for name, child in children.items():
        table.add_row(
            name,
            str(child.pid or "–"),
            child.state,
            _duration(child.age_s(now_s)) if child.pid else "–",
            str(child.restarts),
            child.last_exit or "–",
        )
    return table


def job_table(jobs: Iterable[JobStatus]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("job", "kind", "class", "model", "state", "pool", "progress", "accepted", "why"):
        table.add_column(name, overflow="fold")
    for job in jobs:
        goal = f"/{job.goal}" if job.goal is not None else ""
        table.add_row(
            job.id,
            job.kind,
            job.job_class,
            job.model,
            Text(job.state, style=_JOBS.get(job.state, "")),
            job.pool or "–",
            f"{job.progress}{goal}",
            _clock(job.accepted_ms),
            job.why or "",
        )
    return table


def _state(pool: PoolSnapshot) -> Text:
    text = Text(pool.state, style=_STATES[pool.state])
    if pool.pressure is not Pressure.OK:
        text.append(f" {pool.pressure} pressure", style="yellow")
    if pool.why:
        text.append(f" {pool.why}", style="dim")
    return text


def _models(pool: PoolSnapshot) -> str:
    """Those in memory first; in brackets those it could load."""
    others = [name for name in pool.models if name not in pool.loaded]
    shown = [*pool.loaded, *(f"({name})" for name in others[:3])]
    return " ".join([*shown, f"+{len(others) - 3}"] if len(others) > 3 else shown) or "–"


def _cpu(detail: PoolDetail | None) -> str:
    parts = [process.cpu_percent for process in detail.processes] if detail else []
    known = [part for part in parts if part is not None]
    return _percent(sum(known)) if known else "–"


def _memory(detail: PoolDetail | None) -> str:
    """Proportional sizes where the kernel tells them, so that shared pages count once."""
    processes = detail.processes if detail else ()
    sizes = [each.pss_bytes or each.rss_bytes for each in processes]
    known = [size for size in sizes if size is not None]
    return _size(sum(known)) if known else "–"


def _device_use(detail: PoolDetail | None) -> str:
    if detail is None:
        return "–"
    device = _own_device(detail)
    return _percent(device.utilisation_percent) if device else "–"


def _own_device(detail: PoolDetail) -> DeviceDetail | None:
    named = [each for each in detail.devices if each.device == detail.snapshot.device]
    candidates = named or detail.devices
    return candidates[0] if candidates and not detail.snapshot.stand_in else None


def _step(pool: PoolSnapshot) -> str:
    """Milliseconds of a decode step with one sequence."""
    fixed, each = pool.rates.step_s, pool.rates.step_s_per_sequence
    if fixed is None:
        return "–"
    return f"{1000 * (fixed + (each or 0.0)):.1f} ms"


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _percent(value: float | None) -> str:
    return "–" if value is None else f"{value:.0f} %"


def _size(value: int | None) -> str:
    if value is None:
        return "–"
    return f"{value / _GIB:.1f} GiB" if value >= _GIB else f"{value / _MIB:.0f} MiB"


def _duration(seconds: float) -> str:
    minutes, rest = divmod(int(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{rest:02d}"


def _clock(at_ms: int) -> str:
    return datetime.fromtimestamp(at_ms / 1000, UTC).astimezone().strftime("%H:%M:%S")
