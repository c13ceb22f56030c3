"""Celery's control mailbox, which lets a command know the message that brought it: every worker
gets the same one. Knows nothing of what commands do."""

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from celery.app.control import Control as CeleryControl
from celery.app.control import Mailbox as CeleryMailbox
from kombu.pidbox import Node as KombuNode

LONGEST_TAG = 64
_TAG: ContextVar[str | None] = ContextVar("tag", default=None)


def message_tag() -> str | None:
    """What names the message in all workers; absent outside of a command, or where its sender
    gave it none."""
    return _TAG.get()


@contextmanager
def handling(message: Any) -> Iterator[None]:
    tag = getattr(message, "delivery_tag", None)
    known = isinstance(tag, str) and 0 < len(tag) <= LONGEST_TAG
    before = _TAG.set(tag if known else None)
    try:
        yield
    finally:
        _TAG.reset(before)


class Node(KombuNode):  # type: ignore[misc]  # kombu has no types
    def handle_message(self, body: Any, message: Any = None) -> Any:
        with handling(message):
            return super().handle_message(body, message)


class Mailbox(CeleryMailbox):  # type: ignore[misc]  # celery has no types
    node_cls = Node


class Control(CeleryControl):  # type: ignore[misc]  # celery has no types
    Mailbox = Mailbox
