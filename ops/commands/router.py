"""noidle router: takes jobs in and decides where they run, in this process."""

import os
from typing import Annotated

import typer

from ops.child import MARK
from ops.commands.options import Data, Redis, cluster_settings
from ops.doctor.redis_server import require_redis
from ops.process_log import log_to_stderr
from workers.router import run_router


def router(
    name: Annotated[
        str | None,
        typer.Option(help="Must differ from other routers'; default router@HOST."),
    ] = None,
    data: Data = None,
    redis: Redis = None,
) -> None:
    """Run a router until SIGTERM. Several may run: one decides, another takes over in 3 s."""
    settings = cluster_settings(data, redis)
    # a supervisor has looked already, and its router must come back while Redis is away
    if MARK not in os.environ:
        require_redis(settings.url)
    log_to_stderr(settings.log_level)
    raise typer.Exit(run_router(settings, name or f"router@{settings.host}"))
