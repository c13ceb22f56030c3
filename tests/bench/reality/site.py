"""A cluster whose processes the bench starts itself, so that its pools may be of several hosts:
Valkey, a router, and pools as `noidle worker` runs them. Knows nothing of what they are to do."""

import os
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from noidle import Client
from noidle.connection import connect
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState
from ops.child import ChildSpec
from ops.plan import command, environment
from routing.redis_board import RedisBoard
from tests.bench.processes import running
from tests.valkey_process import ValkeyProcess
from workers.settings import load_settings

_PATIENCE_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class PoolPlan:
    """One `noidle worker`."""

    # ENGINE@HOST
    name: str
    slots: int
    # the name of a shipped engine program, or a declaration's path
    program: str
    threads: int = 1
    # a model to wait for; absent: the program loads none beforehand
    preload: str | None = None
    # further NOIDLE_ variables
    settings: Mapping[str, str] = field(default_factory=dict)

    @property
    def engine(self) -> str:
        return self.name.partition("@")[0]

    def spec(self, url: str, data: Path) -> ChildSpec:
        host = self.name.partition("@")[2]
        words = ["--slots", str(self.slots), "--threads", str(self.threads)]
        words += ["--preload", self.preload] if self.preload else []
        words += [] if self.engine == "cpu" else ["--stand-in"]
        return ChildSpec(
            name=self.name.replace("@", "-"),
            command=command("worker", self.engine, "--program", self.program, *words),
            environment={**_environment(url, data, host), **self.settings},
        )


class Site:
    """What is up."""

    def __init__(self, url: str, client: Client, board: RedisBoard) -> None:
        self.url = url
        self.client = client
        self._board = board

    def snapshots(self) -> dict[str, PoolSnapshot]:
        return {one.pool: one for one in self._board.pools()}

    def models(self) -> dict[str, ModelInfo]:
        return self._board.models()

    def wait_ready(self, plans: Sequence[PoolPlan]) -> None:
        """Until every pool has its model in memory."""
        end_s = time.monotonic() + _PATIENCE_S
        while not self._are_ready(plans):
            if time.monotonic() > end_s:
                raise TimeoutError(f"not ready within {_PATIENCE_S:g} s: {self.snapshots()}")
            time.sleep(0.1)

    def _are_ready(self, plans: Sequence[PoolPlan]) -> bool:
        seen = self.snapshots()
        return all(
            plan.name in seen
            and seen[plan.name].state is PoolState.READY
            and (plan.preload is None or plan.preload in seen[plan.name].loaded)
            for plan in plans
        )


@contextmanager
def site(folder: Path, plans: Sequence[PoolPlan]) -> Iterator[Site]:
    """Ready inside, gone afterwards; `folder` is its data directory."""
    with ExitStack() as stack:
        server = ValkeyProcess(folder)
        stack.callback(server.stop)
        server.start()
        router = ChildSpec(
            name="router",
            command=command("router"),
            environment=_environment(server.url, folder, "router"),
        )
        for spec in [router, *(plan.spec(server.url, folder) for plan in plans)]:
            stack.enter_context(running(spec, folder))
        client = stack.enter_context(Client(server.url))
        board = RedisBoard(stack.enter_context(connect(server.url)))
        found = Site(server.url, client, board)
        found.wait_ready(plans)
        yield found


def _environment(url: str, data: Path, host: str) -> dict[str, str]:
    settings = load_settings({}, url=url, data_dir=data, host=host)
    kept = {name: value for name, value in os.environ.items() if not name.startswith("NOIDLE_")}
    return environment(settings, kept)
