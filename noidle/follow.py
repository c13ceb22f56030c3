"""Reading one job's stream to its end, each event once, whatever happens to Redis meanwhile.
Owns the position in the stream; knows nothing of results or of how a job is sent."""

from collections.abc import Callable, Iterator
from typing import Any, cast

import redis

from noidle import keys
from noidle.connection import reachable
from noidle.errors import ResultTimeout
from noidle.link import Link
from noidle.record import FIRST, event_of, read_status
from noidle.results import JobResult, JobState, StreamEvent

TURN_S = 1.0
"""One wait: so often a thread lets others have its connection and looks for lost jobs."""
Entries = list[tuple[str, dict[str, str]]]


class Follower:
    """One reader of one job's stream, from its start or from a position."""

    def __init__(self, link: Link, job_id: str, *, missing: Callable[[], None]) -> None:
        """`missing` is called when Redis knows no such job: sends it again, or raises."""
        self._link = link
        self._id = job_id
        self._missing = missing
        self._after = FIRST
        self._given = _Given()

    def start_behind(self, position: str) -> None:
        """Leaves out what lies before: for who wants only to know of the end."""
        self._after = position

    def events(
        self, timeout_s: float | None = None, *, end_s: float | None = None
    ) -> Iterator[StreamEvent]:
        """Every event up to and with the one that carries `end`.

        Args:
            timeout_s: the longest wait for the next event; None waits for ever.
            end_s: when to give up altogether, by the link's clock.

        Raises:
            ResultTimeout: the wait is over and the job is not.
        """
        while True:
            wait_end_s = end_s if timeout_s is None else self._link.now_s() + timeout_s
            for event in self._next(wait_end_s):
                fresh = self._given.fresh_part(event)
                if fresh is not None:
                    yield fresh
                if event.end is not None:
                    return

    def _next(self, end_s: float | None) -> list[StreamEvent]:
        ended: JobState | None = None
        while True:
            left_s = TURN_S if end_s is None else max(0.0, end_s - self._link.now_s())
            entries = self._read(0.0 if ended else min(TURN_S, left_s), end_s)
            if entries:
                self._after = entries[-1][0]
                return [event_of(fields) for _, fields in entries]
            if ended:
                # the record outlives the stream where Celery links were to be sent
                return [StreamEvent(end=ended)]
            status = self._link.call(lambda client: read_status(client, self._id), end_s)
            if status is None:
                self._missing()
                self._again()
            elif status.state.final:
                ended = status.state
            elif end_s is not None and self._link.now_s() >= end_s:
                raise _impatient(self._id, status.state)

    def _read(self, block_s: float, end_s: float | None) -> Entries:
        with self._link.waiting():
            entries, still_there = self._link.call(
                lambda client: _read_behind(client, self._id, self._after, block_s), end_s
            )
        if self._after == FIRST or still_there:
            return entries
        # Redis came back without the last moments before its death: what it lost is written
        # anew behind other positions, so only what was given already tells what is new
        self._again()
        return []

    def _again(self) -> None:
        self._after = FIRST
        self._given.rewind()


class _Given:
    """How far the reader is, in characters, tokens and training steps: what a job emits again
    after a loss is the same as before."""

    def __init__(self) -> None:
        self._characters = 0
        self._tokens = 0
        self._step = 0
        self.rewind()

    def rewind(self) -> None:
        """The stream is read from its start again."""
        self._characters_read = 0
        self._tokens_read = 0

    def fresh_part(self, event: StreamEvent) -> StreamEvent | None:
        """The event without what was handed on before; None where nothing is left."""
        text = (event.text or "")[max(0, self._characters - self._characters_read) :]
        tokens = event.tokens[max(0, self._tokens - self._tokens_read) :]
        step = event.step if event.step is None or event.step > self._step else None
        self._characters_read += len(event.text or "")
        self._tokens_read += len(event.tokens)
        self._characters = max(self._characters, self._characters_read)
        self._tokens = max(self._tokens, self._tokens_read)
        self._step = max(self._step, event.step or 0)
        if not text and not tokens and step is None and event.end is None:
            return None
        return event.model_copy(update={"text": text or None, "tokens": tokens, "step": step})


def _impatient(job_id: str, state: JobState) -> ResultTimeout:
    return ResultTimeout(
        f"job {job_id} is {state} and goes on: wait longer, ask again later, or cancel it",
        job_id=job_id,
        state=state.value,
    )


def look(client: redis.Redis, job_id: str) -> tuple[JobResult | None, str | None]:
    """The job's result, if it has ended, and the position of its stream's newest entry; without
    either where nothing is known of the job."""
    with reachable(client), client.pipeline(transaction=False) as pipe:
        # the position first: an end that comes after it will be read behind it
        pipe.xrevrange(keys.stream(job_id), count=1)
        pipe.get(keys.result(job_id))
        pipe.exists(keys.job(job_id))
        found: list[Any] = pipe.execute()
    newest, result, known = found
    position = newest[0][0] if newest else FIRST if known else None
    return JobResult.model_validate_json(result) if result else None, position


def _read_behind(
    client: redis.Redis, job_id: str, after: str, block_s: float
) -> tuple[Entries, bool]:
    """Entries behind `after`, waiting for the first, and whether the one at `after` exists."""
    stream = keys.stream(job_id)
    # 0 would block for ever
    block_ms = max(1, int(block_s * 1000))
    with reachable(client), client.pipeline(transaction=False) as pipe:
        pipe.xread({stream: after}, block=block_ms)
        pipe.xrange(stream, after, after, count=1)
        found: list[Any] = pipe.execute()
    read = cast("list[tuple[str, Entries]]", found[0] or [])
    return (read[0][1] if read else []), bool(found[1])
