"""noidle status: pools, hosts, router and what waits, now or again and again."""

import time
from contextlib import suppress
from typing import Annotated

import typer
from rich.console import Group, RenderableType
from rich.live import Live
from rich.text import Text

from noidle.connection import connect, safe_url
from ops.commands import output
from ops.commands.options import Data, Json, Redis, cluster_settings
from ops.overview import Overview, look
from ops.tables import host_table, overview_table, summary
from routing.redis_board import RedisBoard


def status(
    watch: Annotated[bool, typer.Option("--watch", "-w", help="Draw again, until Ctrl-C.")] = False,
    every_s: Annotated[
        float, typer.Option("--every", metavar="SECONDS", min=0.2, help="How often with --watch.")
    ] = 1.0,
    data: Data = None,
    redis: Redis = None,
    json: Json = False,
) -> None:
    """Show the cluster: each pool's state, slots, models, memory and speed, and what waits."""
    settings = cluster_settings(data, redis)
    with connect(settings.url, max_connections=4) as client, suppress(KeyboardInterrupt):
        board = RedisBoard(client)
        if not watch:
            _show(look(board, client), safe_url(settings.url), json=json)
            return
        if json:
            while True:
                _show(look(board, client), safe_url(settings.url), json=True)
                time.sleep(every_s)
        with Live(console=output.terminal(), auto_refresh=False, screen=True) as live:
            while True:
                live.update(_drawn(look(board, client), safe_url(settings.url)), refresh=True)
                time.sleep(every_s)


def _show(overview: Overview, address: str, *, json: bool) -> None:
    if json:
        output.as_json({"redis": address, **overview.model_dump(mode="json")})
    else:
        output.draw(_drawn(overview, address))


def _drawn(overview: Overview, address: str) -> RenderableType:
    parts: list[RenderableType] = [Text(f"Redis {address}"), summary(overview), Text()]
    if not overview.pools:
        parts.append(Text("no pool: start one with `noidle worker ENGINE`", style="yellow"))
    else:
        parts += [overview_table(overview), Text(), host_table(overview)]
    return Group(*parts)
