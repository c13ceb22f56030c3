"""What the person at `noidle up` sees: plain lines, JSON lines, or a live table. Knows nothing
of how processes are kept alive."""

import json
import shlex
import sys
import time
from contextlib import suppress
from typing import Protocol

from rich.console import Console, Group
from rich.live import Live
from rich.text import Text

from ops.cluster_file import ClusterFile
from ops.overview import Overview
from ops.supervisor import Supervisor
from ops.tables import overview_table, process_table, summary


class View(Protocol):
    """`say` a change, tell that all is `ready`, and, where `live`, `show` the present state."""

    live: bool

    def say(self, line: str) -> None: ...

    def ready(self, overview: Overview, cluster: ClusterFile) -> None: ...

    def show(self, overview: Overview, supervisor: Supervisor) -> None: ...

    def close(self) -> None:
        """The end begins: lines from here on, no table."""


class PlainView:
    """One line a change; for logs, pipes and --detach."""

    live = False

    def say(self, line: str) -> None:
        _write(f"{time.strftime('%H:%M:%S')} {line}")

    def ready(self, overview: Overview, cluster: ClusterFile) -> None:
        # a log is no place for a password
        for line in ready_lines(overview, cluster, show_password=False):
            self.say(line)

    def show(self, overview: Overview, supervisor: Supervisor) -> None: ...

    def close(self) -> None: ...


class JsonView:
    """One JSON object a line: what changed, then what is up."""

    live = False

    def say(self, line: str) -> None:
        _write(json.dumps({"event": "change", "text": line}))

    def ready(self, overview: Overview, cluster: ClusterFile) -> None:
        _write(json.dumps({"event": "ready", **ready_json(overview, cluster)}))

    def show(self, overview: Overview, supervisor: Supervisor) -> None: ...

    def close(self) -> None: ...


class LiveView:
    """Changes as lines, and below them a table that is drawn again in place."""

    live = True

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live: Live | None = None

    def say(self, line: str) -> None:
        self._print(f"{time.strftime('%H:%M:%S')} {line}")

    def ready(self, overview: Overview, cluster: ClusterFile) -> None:
        for line in ready_lines(overview, cluster, show_password=True):
            self._print(line)
        # drawn by the supervisor's loop: a thread of its own would wake the host for nothing
        self._live = Live(console=self._console, auto_refresh=False, transient=True)
        self._live.start()

    def show(self, overview: Overview, supervisor: Supervisor) -> None:
        assert self._live is not None
        parts = (
            Text(),
            summary(overview),
            Text(),
            overview_table(overview),
            Text(),
            process_table(supervisor.children, supervisor.now_s()),
            Text("\nCtrl-C ends everything in order", style="dim"),
        )
        with suppress(OSError):
            self._live.update(Group(*parts), refresh=True)

    def close(self) -> None:
        if self._live is not None:
            with suppress(OSError):
                self._live.stop()
            self._live = None

    def _print(self, line: str) -> None:
        with suppress(OSError):
            self._console.print(line, highlight=False, markup=False)


def ready_lines(overview: Overview, cluster: ClusterFile, *, show_password: bool) -> list[str]:
    """What is up and what to do with it."""
    pools = ", ".join(
        f"{pool.pool} ({pool.slots} slots{', stand-in' if pool.stand_in else ''})"
        if pool.state == "ready"
        else f"{pool.pool} ({pool.state}: {pool.why})"
        for pool in overview.pools
    )
    lines = [f"up: {pools or 'no pool'}"]
    if cluster.flower is not None:
        flower = cluster.flower
        password = flower.password if show_password else f"in {flower.password_file}"
        lines.append(f"Flower: {flower.url} (user {flower.user}, password {password})")
    if cluster.url_file is not None:
        lines.append(f"for programs: export NOIDLE_URL=$(cat {shlex.quote(cluster.url_file)})")
    lines.append("next: noidle submit generate --help; noidle status; noidle down")
    return lines


def ready_json(overview: Overview, cluster: ClusterFile) -> dict[str, object]:
    """The same for programs; Redis's address stays in a file that only its owner reads."""
    return {
        "pid": cluster.pid,
        "url_file": cluster.url_file,
        "pools": [pool.model_dump(mode="json") for pool in overview.pools],
        "flower": cluster.flower.model_dump(exclude={"password"}) if cluster.flower else None,
        "pids": cluster.pids,
    }


def _write(line: str) -> None:
    """A reader that left, or a terminal that was closed, must not disturb the end."""
    with suppress(OSError):
        sys.stdout.write(f"{line}\n")
        sys.stdout.flush()
