"""Whether this container does its work, by what the cluster sees of it: the exit status of
`python compose/health.py router|flower|ENGINE`. Knows nothing of how the work is done."""

import sys
import urllib.request
from collections.abc import Sequence

from noidle import keys
from noidle.connection import connect, reachable
from noidle.errors import NoidleError
from noidle.snapshot import PoolSnapshot, PoolState
from workers.settings import Settings, load_settings

FLOWER = "http://127.0.0.1:5555/healthcheck"
TIMEOUT_S = 3.0


def main(arguments: Sequence[str]) -> int:
    """0 where all is well, 1 with the reason where it is not."""
    [role] = arguments
    try:
        fault = _flower_fault() if role == "flower" else _fault(role, load_settings())
    except (NoidleError, OSError) as error:
        fault = str(error)
    if fault is not None:
        sys.stderr.write(f"{role}: {fault}\n")
    return int(fault is not None)


def _fault(role: str, settings: Settings) -> str | None:
    # both keys live for seconds: that one is there means that somebody has just written it
    key = keys.PUMP if role == "router" else keys.pool_snapshot(f"{role}@{settings.host}")
    with connect(settings.url, max_connections=1) as client, reachable(client):
        found = client.get(key)
    if not isinstance(found, str):
        return f"{key} is not there: nothing was heard for seconds"
    if role == "router":
        return None
    pool = PoolSnapshot.model_validate_json(found)
    return pool.why or "its engine cannot start" if pool.state is PoolState.FAILED else None


def _flower_fault() -> str | None:
    with urllib.request.urlopen(FLOWER, timeout=TIMEOUT_S) as answer:
        return None if answer.status == 200 else f"answers {answer.status}"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
