"""How Celery comes back to Redis: soon and for ever.

kombu waits two seconds more after each failed attempt, up to thirty; a pool that waits that long
after Redis is back would be a dead one. Knows nothing of messages."""

from typing import Any

from celery.app.amqp import AMQP
from kombu import Connection as KombuConnection

PACE = {"interval_start": 0.2, "interval_step": 0.2, "interval_max": 1.0}


class Connection(KombuConnection):  # type: ignore[misc]  # kombu has no types
    """Tries again within a second, however long Redis was away."""

    def as_uri(self, include_password: bool = False, mask: str = "**") -> str:
        """With the scheme that a person knows, instead of our transport's path."""
        _, _, place = super().as_uri(include_password, mask).partition("://")
        return f"{'rediss' if self.ssl else 'redis'}://{place}"

    def ensure_connection(self, *args: Any, **kwargs: Any) -> "Connection":
        super().ensure_connection(*args, **{**PACE, **kwargs})
        return self


class Amqp(AMQP):  # type: ignore[misc]  # celery has no types
    Connection = Connection
    BrokerConnection = Connection
