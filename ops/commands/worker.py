"""noidle worker: one pool on this host, in this process."""

import os
from typing import Annotated

import typer

from engines.machine import inspect_machine
from engines.placement import Placement, find_engines
from noidle.errors import ConfigError
from noidle.jobs import EngineName
from ops.child import MARK
from ops.commands.options import Data, Redis, cluster_settings
from ops.data_dir import DataDir
from ops.doctor.redis_server import require_redis
from ops.metrics import cgroup
from ops.process_log import log_to_stderr
from ops.programs import find_program
from ops.sampler import HostSampler
from workers.pool import run_pool

_FEW_CORES = 8


def worker(
    engine: Annotated[EngineName, typer.Argument(help="The execution path this pool serves.")],
    index: Annotated[
        int, typer.Option(min=0, help="Which pool of this engine on this host; also its device.")
    ] = 0,
    program: Annotated[
        str, typer.Option(metavar="NAME", help="Engine program: tensor, echo or a TOML.")
    ] = "tensor",
    slots: Annotated[int | None, typer.Option(min=1, help="Jobs in flight.")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Cores the engine uses.")] = None,
    preload: Annotated[
        list[str] | None,
        typer.Option(metavar="MODEL", help="A model to load at start; else on first use."),
    ] = None,
    stand_in: Annotated[
        bool, typer.Option("--stand-in", help="The CPU plays the engine's missing device.")
    ] = False,
    host: Annotated[
        str | None, typer.Option(help="This host's name in the cluster; must differ by host.")
    ] = None,
    data: Data = None,
    redis: Redis = None,
) -> None:
    """Run one pool until SIGTERM, which lets it finish or hand back what it runs.

    More hosts join a cluster this way: NOIDLE_URL=rediss://… noidle worker cpu
    """
    settings = cluster_settings(data, redis, slots=slots, threads=threads, host=host)
    chosen = find_program(program)
    placement = _place(engine, index, stand_in=stand_in)
    DataDir(root=settings.data_dir).create()
    # a supervisor has looked already, and its pools must come back while Redis is away
    if MARK not in os.environ:
        require_redis(settings.url)
    log_to_stderr(settings.log_level)
    device = placement.torch_devices[index] if placement.torch_devices else None
    sampler = HostSampler(settings.host, device, visible=os.environ.get("CUDA_VISIBLE_DEVICES"))
    status = run_pool(
        settings,
        engine,
        index,
        program=chosen,
        sampler=sampler,
        threads=settings.threads or default_threads(placement, cgroup.cores()),
        stand_in=placement.stand_in,
        preload=tuple(preload or ()),
        device=device,
    )
    raise typer.Exit(status)


def default_threads(placement: Placement, cores: int) -> int:
    """Cores of an engine: all less a reserve for system, broker and pools where it computes on
    them, one where they only feed a device or stand in for it."""
    if placement.stand_in or placement.engine not in (EngineName.CPU, EngineName.HYBRID):
        return 1
    reserve = 1 if cores <= _FEW_CORES else 2
    return max(1, cores - reserve)


def _place(engine: EngineName, index: int, *, stand_in: bool) -> Placement:
    """
    Raises:
        ConfigError: the engine cannot run here, or has no such device.
    """
    found = find_engines(inspect_machine(), cores=cgroup.cores(), stand_in=stand_in)
    placement = next(each for each in found if each.engine == engine)
    if not placement.can_run:
        raise ConfigError(
            f"the {engine} engine cannot run here: {placement.why}; let the CPU stand in for it "
            "with --stand-in",
            variable="engine",
            value=engine,
            allowed=", ".join(each.engine for each in found if each.can_run),
        )
    if placement.torch_devices and index >= len(placement.torch_devices):
        last = len(placement.torch_devices) - 1
        raise ConfigError(
            f"--index = {index}: this host has devices 0 to {last} for {engine}",
            variable="--index",
            value=str(index),
            allowed=f"0 to {last}",
        )
    return placement
