"""noidle down: ends what `noidle up` started on this host."""

from typing import Annotated

import typer

from ops.commands import output
from ops.commands.options import Data, Json, data_dir
from ops.ending import end_cluster as end_cluster


def down(
    data: Data = None,
    wait_s: Annotated[
        float, typer.Option("--wait", metavar="SECONDS", help="How long to wait for the end.")
    ] = 60.0,
    json: Json = False,
) -> None:
    """End the cluster on this host in order; what waits is kept for the next start."""
    place = data_dir(data)
    end = end_cluster(place, wait_s)
    if json:
        output.as_json({"ended": end.supervisor, "cleared": list(end.cleared)})
    elif end.supervisor is None and not end.cleared:
        output.line(f"no cluster is up on {place.root}")
    else:
        output.line("everything has ended")
