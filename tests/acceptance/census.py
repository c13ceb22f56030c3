"""What Redis keeps of jobs that have ended: proof that each ended once, with what it should say,
and that nothing of it is left. Reads the keys themselves, past the code that wrote them."""

import json
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, cast

import redis

from noidle import keys
from noidle.record import event_of
from noidle.results import JobResult, JobState, StreamEvent
from tests.integration.ops.commands import wait_for

LEFT = (keys.LEASES, keys.HELD_SETS, keys.ALIVE, keys.EXPIRES, keys.AFTER, keys.AFTER_TAKEN)
LEFT_PATTERNS = ("noidle:held:*", "noidle:pool:*:leases", "noidle:taken:*", "noidle:unacked:*")


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """What a job says, however often it had to begin."""

    text: str
    tokens: tuple[int, ...]
    perplexity: float | None = None
    # of a training job
    steps: int | None = None

    @classmethod
    def of(cls, result: JobResult) -> "Answer":
        assert result.state is JobState.DONE, result
        return cls(
            text=result.text or "",
            tokens=result.tokens or (),
            perplexity=result.perplexity,
            steps=result.train.steps if result.train else None,
        )


class Census:
    """Looks at one server."""

    def __init__(self, server: redis.Redis) -> None:
        self._server = server

    def ended(self, ids: Iterable[str]) -> int:
        """How many of them have a result."""
        return cast(int, self._server.exists(*map(keys.result, ids)))

    def running(self, ids: Iterable[str]) -> list[str]:
        """Those of them that a pool has claimed."""
        states = {each: self._server.hget(keys.job(each), "state") for each in ids}
        return [each for each, state in states.items() if state == JobState.RUNNING]

    def went_on(self, ids: Iterable[str], since_ms: int) -> bool:
        """Whether each of these ended, or said something after a moment of Redis's clock."""
        return all(
            self._server.exists(keys.result(each))
            or cast("list[Any]", self._server.xread({keys.stream(each): since_ms}, count=1))
            for each in ids
        )

    def check(self, expected: Mapping[str, Answer]) -> None:
        """Each of these jobs ended once, done, and said what is expected wherever it is kept."""
        often = Counter(cast("list[str]", self._server.lrange(keys.ENDED, 0, -1)))
        for job_id, answer in expected.items():
            assert often[job_id] == 1, f"{job_id} ended {often[job_id]} times"
            assert Answer.of(self._result(job_id)) == answer, job_id
            entry = json.loads(self._text(keys.celery_result(job_id)))
            assert (entry["status"], entry["task_id"]) == ("SUCCESS", job_id)
            assert Answer.of(JobResult.model_validate(entry["result"])) == answer, job_id
            self._check_stream(job_id, answer)
            record = cast("dict[str, str]", self._server.hgetall(keys.job(job_id)))
            assert record["state"] == JobState.DONE
            assert "token" not in record

    def _check_stream(self, job_id: str, answer: Answer) -> None:
        events = [event for _, event in self._stream(job_id)]
        assert [event.end for event in events].count(JobState.DONE) == 1, job_id
        assert events[-1].end is JobState.DONE
        assert said(events) == replace(answer, perplexity=None), job_id

    def wait_settled(self, pools: Iterable[str]) -> None:
        """Nothing waits, runs, is promised or lies in a queue."""
        queues = (keys.ROUTE_QUEUE, *pools, *{pool.partition("@")[0] for pool in pools})
        wait_for(lambda: not self._left(queues), f"nothing left; now {self._left(queues)}")

    def _left(self, queues: Iterable[str]) -> list[str]:
        names = [*LEFT, *queues]
        for pattern in LEFT_PATTERNS:
            names += cast("list[str]", self._server.keys(pattern))
        found = {name for name in names if self._server.exists(name)}
        return sorted(name for name in found if not name.endswith(":mutex"))

    def silence_s(self, ids: Iterable[str]) -> float:
        """The longest that a reader of one of these streams waited between two entries."""
        times = [[at_ms for at_ms, _ in self._stream(job_id)] for job_id in ids]
        return max(later - sooner for each in times for sooner, later in pairwise(each)) / 1000

    def pause_s(self, ids: Iterable[str]) -> float:
        """The longest time in which none of these jobs said its first word."""
        starts = sorted(self._stream(job_id)[0][0] for job_id in ids)
        return max(later - sooner for sooner, later in pairwise(starts)) / 1000

    def attempts(self, ids: Iterable[str]) -> Counter[int]:
        """How many jobs needed how many attempts."""
        return Counter(self._result(job_id).attempt or 0 for job_id in ids)

    def _result(self, job_id: str) -> JobResult:
        return JobResult.model_validate_json(self._text(keys.result(job_id)))

    def _text(self, key: str) -> str:
        found = self._server.get(key)
        assert isinstance(found, str), f"{key} is missing"
        return found

    def _stream(self, job_id: str) -> list[tuple[int, StreamEvent]]:
        entries = cast("list[tuple[str, dict[str, Any]]]", self._server.xrange(keys.stream(job_id)))
        return [(int(at.partition("-")[0]), event_of(fields)) for at, fields in entries]


def said(events: Iterable[StreamEvent]) -> Answer:
    """All text and tokens of a stream in order, and the last step."""
    kept = list(events)
    return Answer(
        text="".join(event.text or "" for event in kept),
        tokens=tuple(token for event in kept for token in event.tokens),
        steps=max((event.step for event in kept if event.step is not None), default=None),
    )
