"""noidle doctor: what would go wrong here, and what to do about it."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from engines.machine import inspect_machine
from engines.placement import Placement, find_engines
from ops import cluster_file
from ops.commands import output
from ops.commands.options import Data, Json, Redis
from ops.data_dir import DataDir
from ops.doctor.check import Area, Check, Outcome, failures
from ops.doctor.machine import check_machine
from ops.doctor.redis_server import check_redis
from ops.metrics import cgroup
from workers.settings import Settings, load_settings

_STYLES = {Outcome.OK: "green", Outcome.WARN: "yellow", Outcome.FAIL: "red"}
_ENGINES = Area("engine")


def doctor(
    data: Data = None,
    redis: Redis = None,
    all_lines: Annotated[
        bool, typer.Option("--all/--problems", help="Every line, or only those with a remedy.")
    ] = True,
    json: Json = False,
) -> None:
    """Check this host and its Redis: versions, memory, devices, engines, eviction, persistence.

    Exit status 1 if something must be put right.
    """
    settings = load_settings(data_dir=data, url=redis)
    checks = [*check_machine(DataDir(root=settings.data_dir)), *_engines(), *_redis(settings)]
    if json:
        output.as_json([check.model_dump(mode="json") for check in checks])
    else:
        shown = [check for check in checks if all_lines or check.outcome is not Outcome.OK]
        output.draw(_table(shown))
    if failures(checks):
        raise typer.Exit(1)


def _engines() -> list[Check]:
    found = find_engines(inspect_machine(), cores=cgroup.cores())
    return [_engine(placement) for placement in found]


def _engine(placement: Placement) -> Check:
    """An engine that cannot run here is no fault of this host."""
    if placement.can_run:
        return _ENGINES.ok(placement.engine, f"runs on {placement.device}")
    return _ENGINES.ok(placement.engine, f"absent: {placement.why}")


def _redis(settings: Settings) -> list[Check]:
    if "url" in settings.model_fields_set:
        return check_redis(settings.url)
    url = cluster_file.local_url(settings.data_dir)
    if url is None:
        found = "no address set and no cluster up here; `noidle up` brings a server of its own"
        return [Area("redis").ok("address", found)]
    return check_redis(url)


def _table(checks: list[Check]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column("outcome")
    table.add_column("area")
    table.add_column("name")
    table.add_column("found", overflow="fold")
    for check in checks:
        found = Text(check.found)
        if check.remedy:
            found.append(f"\n→ {check.remedy}", style="bold")
        outcome = Text(check.outcome, style=_STYLES[check.outcome])
        table.add_row(outcome, check.area, check.name, found)
    return table
