"""Plays requests on a cluster that is up, in real time. Owns the moments; knows nothing of what is
made of the results."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from noidle import Client
from noidle.results import JobResult, JobState
from routing.simulation.request import Request
from tests.bench.reality.lives import Life, real_life

TELL_S = 15.0
PATIENCE_S = 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """In order of arrival."""

    lives: list[Life]
    # seconds that the client was behind the trace, at most
    late_s: float


class Player:
    """Sends each job at its request's moment, whatever became of those before."""

    def __init__(
        self,
        client: Client,
        model: str,
        prompt: Callable[[Request], str],
        say: Callable[[str], None],
    ) -> None:
        self._client = client
        self._model = model
        self._prompt = prompt
        self._say = say

    def play(self, requests: Sequence[Request]) -> Played:
        jobs = [self._job(one) for one in requests]
        sent, sent_s = [], []
        began_s = told_s = time.monotonic()
        for request, job in zip(requests, jobs, strict=True):
            while (left_s := began_s + request.arrive_s - time.monotonic()) > 0:
                time.sleep(left_s)
            sent_s.append(time.monotonic() - began_s)
            sent.append(self._client.submit(job))
            if time.monotonic() - told_s > TELL_S:
                told_s = time.monotonic()
                self._say(f"{sent_s[-1]:.0f} s: {len(sent)} of {len(jobs)} sent")
        self._say(f"{sent_s[-1]:.0f} s: all {len(jobs)} sent")
        lives = []
        for handle, request, at_s in zip(sent, requests, sent_s, strict=True):
            result = handle.outcome(PATIENCE_S)
            _check(result, request)
            lives.append(real_life(result, at_s))
        behind_s = [at - one.arrive_s for at, one in zip(sent_s, requests, strict=True)]
        return Played(lives=lives, late_s=max(behind_s))

    def _job(self, request: Request) -> dict[str, object]:
        return {
            "id": request.id,
            "kind": "generate",
            "model": self._model,
            "prompt": self._prompt(request),
            "max_tokens": request.output,
            "class": request.job_class.value,
            "label": request.label,
            "seed": request.number,
        }


def _check(result: JobResult, request: Request) -> None:
    """What was done is what is simulated."""
    made = len(result.tokens or ())
    if result.state is not JobState.DONE or made != request.output:
        raise RuntimeError(
            f"job {result.id} ended {result.state} with {made} of {request.output} tokens:"
            f" {result.error}"
        )
    if result.prompt_tokens != request.prompt:
        raise RuntimeError(
            f"job {result.id} has a prompt of {result.prompt_tokens} tokens, not {request.prompt}"
        )
