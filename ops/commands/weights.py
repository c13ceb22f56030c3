"""noidle weights: which share each label has of its class."""

import math
from typing import Annotated

import typer

from noidle.connection import connect
from noidle.errors import ConfigError, InvalidJob
from noidle.jobs import Score
from ops.commands import output
from ops.commands.options import Data, Json, Redis, cluster_settings
from routing.bounds import WEIGHTS_KEPT
from routing.redis_board import RedisBoard

LEAST, MOST = 0.01, 100.0


def weights(
    wanted: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[LABEL=WEIGHT]...", help="chat=2 crawl=0.5; without, all are shown."
        ),
    ] = None,
    data: Data = None,
    redis: Redis = None,
    json: Json = False,
) -> None:
    """Show or set the shares of labels; the router follows within a second.

    Jobs of one class whose producers give them labels take turns by label. A label of weight 2 has
    twice the turns of one without a weight, which is 1; setting 1 forgets a label's weight.
    """
    changes = [_parsed(one) for one in wanted or ()]
    settings = cluster_settings(data, redis)
    with connect(settings.url, max_connections=2) as client:
        board = RedisBoard(client)
        for label, weight in changes:
            if not board.set_weight(label, weight):
                raise _wrong(label, f"one of the {WEIGHTS_KEPT} labels that have a weight already")
        found = board.weights()
    if json:
        output.as_json({"weights": dict(sorted(found.items()))})
        return
    for label, weight in sorted(found.items()):
        output.line(f"{label}={weight:g}")
    if not found:
        output.line("no label has a weight: all have the same share")


def _parsed(text: str) -> tuple[str, float]:
    label, _, number = text.rpartition("=")
    try:
        Score(model="m", text="t", label=label)
        weight = float(number)
    except (InvalidJob, ValueError):
        weight = math.nan
    if not LEAST <= weight <= MOST:
        raise _wrong(text, f"LABEL=WEIGHT, a weight from {LEAST:g} to {MOST:g}, as in chat=2")
    return label, weight


def _wrong(text: str, allowed: str) -> ConfigError:
    return ConfigError(
        f"weights = {text}: allowed is {allowed}", variable="weights", allowed=allowed
    )
