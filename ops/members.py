"""The processes of this host as the cluster sees them: who has reported, who is stuck. Joins
process names with pools; knows nothing of how processes are started."""

import urllib.error
import urllib.request
from collections.abc import Sequence

import redis

from noidle.errors import ClusterUnavailable
from noidle.snapshot import PoolState
from ops.cluster_file import FlowerAddress
from ops.overview import Observed, Overview, look
from ops.supervisor import Supervisor
from ops.watchdog import Sight, Watchdog, sight_of_pool

_LOOK_EVERY_S = 5.0
# a process that has just started cannot have reported yet
_YOUNG_S = 30.0
_FLOWER_TIMEOUT_S = 1.0


class Members:
    """Router, pools and Flower of one host.

    Args:
        pools: their process names, `cpu` or `cpu.1`.
    """

    def __init__(
        self, board: Observed, client: redis.Redis, host: str, pools: Sequence[str]
    ) -> None:
        self._board = board
        self._client = client
        self._pools = {name: f"{name}@{host}" for name in pools}
        self._watchdog = Watchdog()
        self._next_look_s = 0.0

    def overview(self) -> Overview:
        return look(self._board, self._client)

    def missing(self, flower: FlowerAddress | None) -> list[str]:
        """Who is not ready. A pool whose engine cannot start has reported and is not waited
        for; its state says why."""
        try:
            seen = self.overview()
        except ClusterUnavailable:
            return ["redis"]
        up = {pool.pool for pool in seen.pools if pool.state is not PoolState.STARTING}
        names = [name for name, pool in self._pools.items() if pool not in up]
        if seen.router is None:
            names.insert(0, "router")
        if flower is not None and not _flower_answers(flower):
            names.append("flower")
        return names

    def stuck(self, supervisor: Supervisor, now_s: float) -> dict[str, str]:
        """Process name to what is wrong, for those that live but do not work."""
        if now_s < self._next_look_s:
            return {}
        self._next_look_s = now_s + _LOOK_EVERY_S
        grown = [
            name
            for name, child in supervisor.children.items()
            if child.pid is not None and child.age_s(now_s) > _YOUNG_S
        ]
        return self._watchdog.judge(self._sights(grown), now_s)

    def _sights(self, grown: list[str]) -> dict[str, Sight]:
        seen = self.overview()
        pools = {pool.pool: pool for pool in seen.pools}
        sights = {}
        for name in grown:
            if name == "router":
                sights[name] = Sight(present=seen.router is not None)
            elif name in self._pools:
                pool = self._pools[name]
                sights[name] = sight_of_pool(pools.get(pool), seen.queued.get(pool, 0))
        return sights


def _flower_answers(flower: FlowerAddress) -> bool:
    try:
        with urllib.request.urlopen(  # noqa: S310  our own address
            f"{flower.url}/healthcheck", timeout=_FLOWER_TIMEOUT_S
        ) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False
