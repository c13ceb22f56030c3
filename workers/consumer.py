"""Celery's consumer, which sends its task events several at a time.

An event on its own costs as much as the rest of a small job; Flower does not see the difference
of a quarter of a second. Knows nothing of what the events say."""

from typing import Any

from celery.worker.consumer import Consumer as CeleryConsumer

FLUSH_S = 0.25


class Consumer(CeleryConsumer):  # type: ignore[misc]  # celery has no types
    """With the event loop; what is buffered when a connection is lost goes out on the next."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._flush_planned = False

    def on_send_event_buffered(self) -> None:
        """Called from any thread for each event."""
        if not self._flush_planned:
            self._flush_planned = True
            self.hub.call_soon(self._plan_flush)

    def _plan_flush(self) -> None:
        self.hub.call_later(FLUSH_S, self._flush_now)

    def _flush_now(self) -> None:
        self._flush_planned = False
        self._flush_events()
