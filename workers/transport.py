"""Celery's Redis transport with the repairs that noidle needs, in one subclass.

Owns how messages are taken from queues, noted while under way, and given back. A message of a
lease is not noted at all: its lease brings it back. Knows nothing of jobs. Tied to kombu 5.7:
what it overrides are that version's internals.

Repairs: (1) a lost connection gives back only what is not being worked on, and what was being
worked on is acknowledged through the next connection; (2) a router takes messages with BLMOVE
into a list of its own, so that its death between taking and noting loses none; (3) a message
that cannot be read is dropped with a log line instead of ending the worker."""

import logging
from collections import defaultdict
from contextlib import suppress
from pathlib import Path
from queue import Empty
from time import monotonic, time
from typing import Any

from celery.worker import state as worker_state
from kombu.transport import redis as kombu_redis
from kombu.transport import virtual
from kombu.utils.json import dumps, loads
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.exceptions import TimeoutError as RedisTimeoutError

from noidle import keys
from routing.message import LEASED_HEADER

LOG = logging.getLogger("noidle.transport")
GONE_MS = 30_000
"""A router not seen this long is gone; others put its messages back."""
_ADOPT = (Path(__file__).parent / "scripts" / "adopt.lua").read_text()
_CUT = (RedisConnectionError, RedisTimeoutError, OSError)
# what is Redis's fault, never the message's: also a full memory or a replica that only reads
_REFUSED = (RedisError, OSError)
# by the key of a worker's notes: acknowledged while no connection was there to say so
_OWED: defaultdict[str, set[str]] = defaultdict(set)


class QoS(kombu_redis.QoS):  # type: ignore[misc]  # kombu has no types
    """Notes in Redis what is under way, except for messages that a lease covers."""

    def append(self, message: Any, delivery_tag: str) -> None:
        if LEASED_HEADER in (message.headers or {}):
            return
        info = message.delivery_info
        note = dumps([message._raw, info["exchange"], info["routing_key"]])
        # what a cut leaves half done is delivered twice, which is harmless, but never lost
        with self.channel.conn_or_acquire() as client:
            pipe = client.pipeline(transaction=False)
            pipe.zadd(self.unacked_index_key, {delivery_tag: time()})
            pipe.hset(self.unacked_key, delivery_tag, note)
            self.channel.forget_taken(pipe)
            pipe.execute()
        virtual.QoS.append(self, message, delivery_tag)

    def ack(self, delivery_tag: str) -> None:
        virtual.QoS.ack(self, delivery_tag)
        try:
            if self.channel.closed:
                raise RedisConnectionError("the connection of this message is gone")
            with self.channel.conn_or_acquire() as client:
                pipe = client.pipeline(transaction=False)
                self._remove_from_indices(delivery_tag, pipe).execute()
        except _CUT:
            _OWED[self.unacked_key].add(delivery_tag)

    def restore_unacked(self, client: Any = None) -> list[Any]:
        """Called once, as the channel closes. What cannot be given back now comes back by
        its visibility timeout."""
        self._flush()
        kept = _in_hand()
        with suppress(*_CUT), self.channel.conn_or_acquire(client) as connection:
            for tag in [tag for tag in self._delivered if tag not in kept]:
                self.restore_by_tag(tag, client=connection)
        self._delivered.clear()
        return []

    def restore_visible(self, start: int = 0, num: int | None = 10, interval: int = 10) -> None:
        self._settle()
        self.channel.adopt()
        super().restore_visible(start=start, num=num, interval=interval)

    def _settle(self) -> None:
        owed = _OWED[self.unacked_key]
        if tags := list(owed):
            with self.channel.conn_or_acquire() as client:
                client.zrem(self.unacked_index_key, *tags)
                client.hdel(self.unacked_key, *tags)
            owed.difference_update(tags)


def _in_hand() -> set[str]:
    """Delivery tags of requests that run, or will: the threads keep their queue over a lost
    connection, and lose it when the worker stops."""
    stops = worker_state.should_stop not in (None, False)
    found = [worker_state.active_requests, *([] if stops else [worker_state.reserved_requests])]
    while True:
        try:
            return {request.message.delivery_tag for requests in found for request in requests}
        except RuntimeError:
            continue  # a thread took up a request meanwhile


class Channel(kombu_redis.Channel):  # type: ignore[misc]  # kombu has no types
    """With `taken_key`, and one queue to consume, messages are taken with BLMOVE."""

    QoS = QoS
    # list of what this worker took and has not noted yet
    taken_key: str | None = None
    from_transport_options = (*kombu_redis.Channel.from_transport_options, "taken_key")

    # kombu makes a client for each command, which costs more than the command
    _commands: Any = None
    # queue of the BLMOVE under way
    _moving_from: str | None = None
    # what it brought, while it is being delivered
    _taken: bytes | None = None
    _started = False
    auto_delete_queues: set[str]

    def adopt(self, *, starting: bool = False) -> None:
        """Shows that this worker lives, and puts back what dead ones had taken."""
        queue = self._only_queue()
        if queue is None:
            return
        with self.conn_or_acquire() as client:
            count = client.register_script(_ADOPT)(
                keys=[keys.TAKEN, self.taken_key, queue], args=[GONE_MS, int(starting)]
            )
        if count:
            LOG.info(
                "%d messages of %s went back to their queue",
                count,
                "a former life or dead routers",
                extra={"event": "messages_adopted", "count": count},
            )

    def forget_taken(self, pipe: Any) -> None:
        """The message is noted in the same trip: the list need not hold it any more."""
        if self._taken is not None:
            pipe.lrem(self.taken_key, 1, self._taken)

    def _create_client(self, asynchronous: bool = False) -> Any:
        if asynchronous:
            return super()._create_client(asynchronous=True)
        if self._commands is None or self._commands.connection_pool is not self.pool:
            self._commands = super()._create_client()
        return self._commands

    def _only_queue(self) -> str | None:
        queues = self.active_queues
        return str(queues[0]) if self.taken_key and len(queues) == 1 else None

    def _brpop_start(self, timeout: float | None = None) -> None:
        queue = self._only_queue()
        if queue is None:
            super()._brpop_start(timeout)
            return
        if not self._started:
            self.adopt(starting=True)
            self._started = True
        self._moving_from = queue
        self._in_poll = self.client.connection
        self._brpop_sent_at = monotonic()
        wait_s = self.brpop_timeout if timeout is None else timeout
        self.client.connection.send_command(
            "BLMOVE", queue, self.taken_key, "RIGHT", "LEFT", wait_s or 0
        )

    def _brpop_read(self, **options: Any) -> bool:
        queue, self._moving_from = self._moving_from, None
        command = "BRPOP" if queue is None else "BLMOVE"
        try:
            reply = self.client.parse_response(self.client.connection, command, **options)
        except self.connection_errors:
            # the next round connects again
            self.client.connection.disconnect()
            raise
        finally:
            self._in_poll = None
            self._flush_brpop_reauth()
        if not reply:
            raise Empty
        if queue is not None:
            self._taken = reply
            self._take(queue, reply)
        else:
            source = reply[0].decode().rsplit(self.sep, 1)[0]
            self._queue_cycle.rotate(source)
            self._take(source, reply[1])
        return True

    def _take(self, queue: str, item: bytes) -> None:
        tag = None
        try:
            message = loads(item.decode())
            tag = message["properties"]["delivery_tag"]
            self.connection._deliver(message, queue)
        except _REFUSED:
            raise
        except Exception:
            # the border of this process: bytes that anybody may have pushed
            LOG.exception(
                "a message on queue %s cannot be read and is dropped",
                queue,
                extra={"event": "message_dropped", "queue": queue},
            )
            self._drop(tag)
        finally:
            self._taken = None

    def _drop(self, tag: str | None) -> None:
        with self.conn_or_acquire() as client:
            self.forget_taken(client)
        if isinstance(tag, str):
            self.qos.ack(tag)

    def close(self) -> None:
        try:
            super().close()
        except _CUT:
            # Redis is away: close what is ours without saying goodbye to it
            self._in_poll = None
            self.auto_delete_queues = set()
            super().close()
        finally:
            # giving messages back opened a pool again
            self._disconnect_pools()


class Transport(kombu_redis.Transport):  # type: ignore[misc]  # kombu has no types
    Channel = Channel

    def _deliver(self, message: Any, queue: str) -> None:
        if queue not in self._callbacks and LEASED_HEADER in message.get("headers", {}):
            # nobody consumes here any more: the lease goes elsewhere, or is handed back
            return
        super()._deliver(message, queue)
