"""Two pools of one name would share leases and queues, and each would take the other's.

Owns the check at start; knows nothing of what a pool does."""

import time
from collections.abc import Callable

from noidle.errors import ClusterUnavailable, ConfigError
from noidle.snapshot import PoolSnapshot, PoolState
from routing.board import Board

LOOK_S = 0.2
LOOKS = 8
"""Together longer than a living pool is silent."""


def refuse_twin(board: Board, pool: str, *, sleep: Callable[[float], None] = time.sleep) -> None:
    """Returns at once where nobody of this name was seen lately. The snapshot of one that was
    killed stays a while, but is not published again.

    Raises:
        ConfigError: another process publishes as this pool.
    """
    try:
        first = _seen(board, pool)
        for _ in range(LOOKS if first else 0):
            sleep(LOOK_S)
            now = _seen(board, pool)
            if now is None or now.state is PoolState.DRAINING:
                return
            if first is not None and now.published_ms != first.published_ms:
                raise _refusal(pool)
    except ClusterUnavailable:
        # whoever it might be cannot be heard; a supervisor restarts pools while Redis is away
        return


def _seen(board: Board, pool: str) -> PoolSnapshot | None:
    return next((one for one in board.pools() if one.pool == pool), None)


def _refusal(pool: str) -> ConfigError:
    host = pool.partition("@")[2]
    return ConfigError(
        f"NOIDLE_HOST = {host!r}: a pool named {pool} is in this cluster already; allowed is a"
        f" name that no other host has, or another --index on the same host",
        variable="NOIDLE_HOST",
        value=host,
        allowed="a name that no other host of the cluster has",
    )
