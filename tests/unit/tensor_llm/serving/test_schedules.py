"""Whatever happens beside it, a request gets the tokens it would get alone."""

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tensor_llm.sampling import Sampling
from tensor_llm.serving.core import Core
from tensor_llm.serving.request import Request
from tests.unit.tensor_llm.builders import random_tokens
from tests.unit.tensor_llm.serving.executors import (
    KINDS,
    MODELS,
    executor_of,
    failing,
    plain_answer,
    plain_logprobs,
)

LONGEST = 14
SAMPLINGS = [
    Sampling(),
    Sampling(temperature=1.0, seed=5),
    Sampling(temperature=0.8, top_k=9, top_p=0.9, seed=6),
]


@dataclass(frozen=True)
class Job:
    request: Request
    # steps before it is added, and before it is dropped
    joins: int
    drops: int | None
    # its steps fail once it has read so many tokens
    poison: int | None


@st.composite
def jobs(draw, drops: bool = True, poison: bool = True) -> Job:
    # few beginnings, so that many are shared and plain answers are found in the cache
    shared = random_tokens(draw(st.sampled_from([0, 5, 16, 24])), draw(st.integers(0, 1)))
    own = random_tokens(draw(st.sampled_from([1, 2, 7, 16])), draw(st.integers(2, 3)))
    score = draw(st.integers(0, 3)) == 0 and len(shared) + len(own) > 1
    request = Request(
        tokens=(*shared, *own),
        max_tokens=0 if score else draw(st.integers(1, LONGEST)),
        score=score,
        sampling=draw(st.sampled_from(SAMPLINGS)),
        rank=draw(st.integers(0, 3)),
        logprobs=draw(st.booleans()),
        reuse=draw(st.integers(0, 4)) > 0,
        eos_tokens=frozenset(draw(st.sampled_from([(), (), (3, 9, 17, 20, 33, 41)]))),
    )
    rarely = st.integers(0, 3).map(lambda n: n == 0)
    return Job(
        request=request,
        joins=draw(st.integers(0, 25)),
        drops=draw(st.integers(0, 30)) if drops and draw(rarely) else None,
        poison=draw(st.integers(0, 40)) if poison and draw(rarely) else None,
    )


def wanted_of(name: str, request: Request) -> tuple[tuple[int, ...], str]:
    tokens = plain_answer(name, request.tokens, LONGEST, request.sampling)[: request.max_tokens]
    for place, token in enumerate(tokens):
        if token in request.eos_tokens:
            return tokens[:place], "eos"
    return tokens, "length"


def logprobs_of(name: str, request: Request, found: tuple[int, ...]) -> list[float]:
    if request.score:
        return list(plain_logprobs(name, request.tokens))
    every = plain_logprobs(name, (*request.tokens, *found))
    return list(every[len(request.tokens) - 1 :]) if request.logprobs else []


class Run:
    """Plays a schedule and keeps what came out."""

    def __init__(self, core: Core, schedule: list[Job]) -> None:
        self.core, self.schedule = core, schedule
        self.jobs = {}
        self.got: dict[int, list[int]] = {}
        self.logprobs: dict[int, list[float]] = {}
        self.ends: dict[int, object] = {}
        scheduler = core._scheduler
        evict = scheduler.evict

        def watched(victim) -> None:
            staying = [one for one in scheduler.running if not one.leaving]
            assert victim.rank == max(one.rank for one in staying)
            evict(victim)

        scheduler.evict = watched

    def guilty(self, batch) -> bool:
        rows = set(batch.sequence_M.tolist())
        return any(
            one.row in rows
            and (poison := self.schedule[job].poison) is not None
            and int(batch.position_M[batch.sequence_M == one.row].max()) >= poison
            for one, job in self.jobs.items()
        )

    def play(self) -> None:
        left = dict(enumerate(self.schedule))
        step = 0
        while left or self.core.busy:
            for job in [job for job, one in left.items() if one.joins <= step]:
                self.jobs[self.core.add(left.pop(job).request)] = job
                self.got[job], self.logprobs[job] = [], []
            for sequence, job in self.jobs.items():
                if self.schedule[job].drops == step - self.schedule[job].joins:
                    self.core.drop(sequence)
                    self.ends.setdefault(job, "dropped")
            for output in self.core.step():
                self.hear(output)
            self.core.check()
            step += 1
            assert step < 3000, "no end"

    def hear(self, output) -> None:
        job = self.jobs[output.sequence]
        assert job not in self.ends
        self.got[job] += output.tokens
        self.logprobs[job] += output.logprobs
        if output.finished or output.error:
            self.ends[job] = output.finished or output.error


@settings(max_examples=30, deadline=None)
@given(data=st.data())
@pytest.mark.parametrize("kind", KINDS)
def test_any_schedule_gives_each_request_what_it_gets_alone(kind, data):
    """Greedy and sampled: joins, drops, evictions, failures, shared beginnings, any sizes."""
    name = data.draw(st.sampled_from(MODELS))
    size = data.draw(st.sampled_from([1, 2, 4, 7, 16]))
    blocks = data.draw(st.integers(-(-54 // size), -(-200 // size)))
    schedule = data.draw(st.lists(jobs(), min_size=1, max_size=7))
    blips = data.draw(st.sets(st.integers(0, 40), max_size=3))
    where = data.draw(st.sampled_from(["run", "land"]))
    steps = 0

    def fails(batch) -> str | None:
        nonlocal steps
        steps += 1
        return where if steps in blips or run.guilty(batch) else None

    core = Core(
        failing(executor_of(kind, name, blocks, size), fails),
        rows=data.draw(st.integers(1, 5)),
        chunk_tokens=data.draw(st.sampled_from([1, 3, 8, 64])),
    )
    run = Run(core, schedule)
    run.play()
    assert core.kv_tokens_free == core.kv_tokens_total
    assert not core.running
    assert not core._scheduler.prefixes._readers
    assert not core.waiting
    for job, one in enumerate(schedule):
        tokens, finish = wanted_of(name, one.request)
        found, end = tuple(run.got[job]), run.ends[job]
        assert found == tokens[: len(found)]
        if end == "dropped" or isinstance(end, RuntimeError):
            # of two steps that fail, the second may be the search for the first one's culprit
            assert end == "dropped" or one.poison is not None or len(blips) > 1
        else:
            assert (found, end) == (tokens, finish)
        if end == "length" or not one.request.score:
            wanted = logprobs_of(name, one.request, found)
            assert run.logprobs[job] == pytest.approx(wanted, rel=1e-4, abs=1e-5)
