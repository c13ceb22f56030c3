"""noidle logs: what the processes of this host's cluster wrote."""

import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Annotated

import typer

from noidle.errors import NoidleError
from ops.commands import output
from ops.commands.options import Data, Json, data_dir
from ops.logfile import LogFile

_LOOK_EVERY_S = 0.25


class NoLog(NoidleError):
    """No process of that name has a log here."""


def logs(
    process: Annotated[
        list[str] | None,
        typer.Argument(metavar="[PROCESS]...", help="valkey, router, cpu, flower, …; default all."),
    ] = None,
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is written, until Ctrl-C.")
    ] = False,
    lines: Annotated[
        int, typer.Option("--lines", "-n", min=0, help="Lines of each to begin with.")
    ] = 20,
    data: Data = None,
    json: Json = False,
) -> None:
    """Show the logs of the cluster on this host; each is cut at 8 MiB, one older part is kept."""
    place = data_dir(data)
    found = _choose(place.logs, process or [])
    width = max(len(name) for name in found)
    for name, line in _lines(found, lines, follow=follow):
        if json:
            output.as_json({"process": name, "line": line})
        else:
            output.line(f"{name:<{width}} {line}" if len(found) > 1 else line)


def _choose(folder: Path, wanted: list[str]) -> dict[str, LogFile]:
    known = {path.stem: LogFile(path) for path in sorted(folder.glob("*.log"))}
    unknown = [name for name in wanted if name not in known]
    if unknown or not known:
        there = ", ".join(known) or "none; nothing was started on this data directory yet"
        raise NoLog(f"no log of {unknown[0] if unknown else 'any process'} in {folder}: {there}")
    return {name: known[name] for name in wanted or known}


def _lines(found: dict[str, LogFile], count: int, *, follow: bool) -> Iterator[tuple[str, str]]:
    followers = {name: log.follow(wait=lambda _: None) for name, log in found.items()}
    for follower in followers.values():
        # from here on: what is written while the first lines are shown must not be missed
        next(follower)
    for name, log in found.items():
        yield from ((name, line) for line in (log.last_lines(count) if count else []))
    with suppress(KeyboardInterrupt):
        while follow:
            fresh = [(name, line) for name, log in followers.items() for line in next(log)]
            yield from fresh
            if not fresh:
                time.sleep(_LOOK_EVERY_S)
