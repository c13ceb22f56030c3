"""noidle profile: what goes first where answers and training cannot both have their way."""

from typing import Annotated

import typer

from noidle.connection import connect
from noidle.errors import ConfigError
from noidle.profile import ProfileName
from ops.commands import output
from ops.commands.options import Data, Json, Redis, cluster_settings
from routing.redis_board import RedisBoard


def profile(
    name: Annotated[
        str | None, typer.Argument(help="response_first or training_first; without, it is shown.")
    ] = None,
    data: Data = None,
    redis: Redis = None,
    json: Json = False,
) -> None:
    """Show or switch the router's profile; the router follows within a second.

    response_first keeps answers quick and trains on what is left. training_first gives training
    its slot first and lets it keep it. Hard memory pressure stops training in either.
    """
    if name is not None and name not in list(ProfileName):
        allowed = " or ".join(ProfileName)
        raise ConfigError(f"profile = {name}: allowed is {allowed}", variable="profile")
    settings = cluster_settings(data, redis)
    with connect(settings.url, max_connections=2) as client:
        board = RedisBoard(client)
        if name is not None:
            board.set_profile(ProfileName(name))
        found = board.profile().value
    if json:
        output.as_json({"profile": found})
    else:
        output.line(found)
