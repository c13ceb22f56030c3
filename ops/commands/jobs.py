"""noidle jobs: the newest jobs."""

from typing import Annotated

import typer

from noidle.connection import connect
from ops.commands import output
from ops.commands.options import Data, Json, Redis, cluster_settings
from ops.tables import job_table
from routing.redis_board import RedisBoard


def jobs(
    limit: Annotated[int, typer.Option("--limit", "-n", min=1, max=1000, help="How many.")] = 20,
    data: Data = None,
    redis: Redis = None,
    json: Json = False,
) -> None:
    """List the newest jobs, those that wait or run first."""
    settings = cluster_settings(data, redis)
    with connect(settings.url, max_connections=2) as client:
        found = RedisBoard(client).jobs(limit)
    if json:
        output.as_json([job.model_dump(mode="json") for job in found])
    elif found:
        output.draw(job_table(found))
    else:
        output.line("no jobs; send one with `noidle submit`")
