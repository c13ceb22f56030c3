"""noidle worker: one pool on this host, in this process."""

import os
from typing import Annotated

import typer

from engines.machine import inspect_machine
from engines.placement import find_engines
from noidle.errors import ConfigError
from noidle.jobs import EngineName
from ops.child import MARK
from ops.commands.options import Data, Preload, Redis, cluster_settings
from ops.data_dir import DataDir
from ops.doctor.redis_server import require_redis
from ops.metrics import cgroup
from ops.process_log import log_to_stderr
from ops.programs import find_program
from ops.sampler import HostSampler
from workers.pool import run_pool

_FEW_CORES = 8


Engine = Annotated[EngineName, typer.Argument(help="The execution path this pool serves.")]
Index = Annotated[
    int, typer.Option(min=0, help="Which pool of this engine on this host; also its device.")
]
Program = Annotated[
    str, typer.Option(metavar="NAME", help="Engine program: tensor, echo or a TOML.")
]
Slots = Annotated[int | None, typer.Option(min=1, help="Jobs in flight.")]
Threads = Annotated[int | None, typer.Option(min=1, help="Cores the engine uses.")]
StandIn = Annotated[
    bool, typer.Option("--stand-in", help="The CPU plays the engine's device, with one thread.")
]
Device = Annotated[
    str | None,
    typer.Option(metavar="NAME", help="As torch names it (cuda:1); default found by --index."),
]
MemoryBytes = Annotated[
    int | None,
    typer.Option(min=1, help="For weights and cache; default what is free, less a reserve."),
]
Host = Annotated[
    str | None, typer.Option(help="This host's name in the cluster; must differ by host.")
]


def worker(
    engine: Engine,
    index: Index = 0,
    program: Program = "tensor",
    slots: Slots = None,
    threads: Threads = None,
    preload: Preload = None,
    stand_in: StandIn = False,
    device: Device = None,
    memory_bytes: MemoryBytes = None,
    host: Host = None,
    data: Data = None,
    redis: Redis = None,
) -> None:
    """Run one pool until SIGTERM, which lets it finish or hand back what it runs.

    More hosts join a cluster this way: NOIDLE_URL=rediss://… noidle worker cpu
    """
    settings = cluster_settings(data, redis, slots=slots, threads=threads, host=host)
    chosen = find_program(program)
    if device is None and not stand_in:
        device = _find_device(engine, index)
    DataDir(root=settings.data_dir).create()
    # a supervisor has looked already, and its pools must come back while Redis is away
    if MARK not in os.environ:
        require_redis(settings.url)
    log_to_stderr(settings.log_level)
    sampler = HostSampler(settings.host, device, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    status = run_pool(
        settings,
        engine,
        index,
        program=chosen,
        sampler=sampler,
        threads=settings.threads or _threads(engine, stand_in=stand_in),
        stand_in=stand_in,
        preload=tuple(preload or ()),
        device=device,
        memory_bytes=memory_bytes,
    )
    raise typer.Exit(status)


def _threads(engine: EngineName, *, stand_in: bool) -> int:
    """Cores of an engine: all less a reserve for system, broker and pools where it computes on
    them, one where they only feed a device or stand in for it."""
    if stand_in or engine not in (EngineName.CPU, EngineName.HYBRID):
        return 1
    cores = cgroup.cores()
    return max(1, cores - (1 if cores <= _FEW_CORES else 2))


def _find_device(engine: EngineName, index: int) -> str | None:
    """The device of this pool; None for the CPU. Asking torch takes seconds, so nobody asks who
    knows already.

    Raises:
        ConfigError: the engine cannot run here, or has no such device.
    """
    if engine is EngineName.CPU:
        return None
    found = find_engines(inspect_machine(), cores=cgroup.cores())
    placement = next(each for each in found if each.engine == engine)
    if not placement.can_run:
        raise ConfigError(
            f"the {engine} engine cannot run here: {placement.why}; let the CPU stand in for it "
            "with --stand-in",
            variable="engine",
            value=engine,
            allowed=", ".join(each.engine for each in found if each.can_run),
        )
    if index >= len(placement.torch_devices):
        last = len(placement.torch_devices) - 1
        raise ConfigError(
            f"--index = {index}: this host has devices 0 to {last} for {engine}",
            variable="--index",
            value=str(index),
            allowed=f"0 to {last}",
        )
    return placement.torch_devices[index]
