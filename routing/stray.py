"""Messages that producers sent with a Celery priority. Owns bringing them into the route queue;
knows nothing of what is in them.

kombu's Redis transport has no priorities in a list: it writes a message of priority 3 to the
list `route`, \\x06\\x16, `3`, and a consumer that knows other steps never reads it. noidle's
classes replace priorities, so all of them go to the one list that routers read."""

from pathlib import Path

import redis

from noidle import keys
from noidle.connection import reachable
from noidle.script import Script


class StrayMessages:
    """Safe to call from several routers at once."""

    def __init__(self, client: redis.Redis, queue: str = keys.ROUTE_QUEUE) -> None:
        self._client = client
        self._queue = queue
        self._gather = Script("gather", Path(__file__).parent / "scripts")

    def gather(self) -> int:
        """Moves what lies in side lists, in its order; says how many messages."""
        with reachable(self._client):
            return int(self._gather(self._client, self._queue))
