"""The result of a run, put together from its claim, what its engine said, and where it ran.

Knows nothing of boards or threads."""

from collections.abc import Sequence
from dataclasses import dataclass

from engines.protocol import RunResult
from noidle.jobs import EngineName, Generate
from noidle.results import JobError, JobResult, JobState, JobTimes
from routing.board import Claim
from routing.outcome import DEADLINE


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """Where runs of a pool take place."""

    pool: str
    engine: EngineName
    host: str
    stand_in: bool = False
    # absent: the engine is not up
    device: str | None = None
    # of the engine's process
    pid: int | None = None


def done(claim: Claim, place: Place, said: RunResult) -> JobResult:
    """Text and tokens of former attempts come first."""
    text = None if said.text is None else claim.text + said.text
    tokens = None if said.tokens is None else (*claim.tokens, *said.tokens)
    times = JobTimes(
        load_ms=said.load_ms,
        tokenize_ms=said.tokenize_ms,
        prefill_ms=said.prefill_ms,
        decode_ms=said.decode_ms,
        stream_ms=said.stream_ms,
        tpot_ms=said.tpot_ms,
    )
    return _result(claim, place, JobState.DONE).model_copy(
        update={
            "text": text,
            "tokens": tokens,
            "prompt_tokens": said.prompt_tokens,
            "prefix_tokens": said.prefix_tokens,
            "finish_reason": said.finish_reason,
            "logprobs": said.logprobs,
            "perplexity": said.perplexity,
            "train": said.train,
            "model": said.model or claim.job.model,
            "revision": said.revision,
            "times": times,
        }
    )


def failed(claim: Claim, place: Place, error: JobError) -> JobResult:
    return _result(claim, place, JobState.FAILED).model_copy(update={"error": error})


def cancelled(claim: Claim, place: Place) -> JobResult:
    return _result(claim, place, JobState.CANCELLED)


def overdue(claim: Claim, place: Place, text: str, tokens: Sequence[int]) -> JobResult:
    """Its deadline passed while it ran; `text` and `tokens` are what this attempt emitted."""
    job = claim.job
    message = f"its deadline, {job.deadline_s:g} s after it was accepted, passed while it ran"
    if not isinstance(job, Generate):
        return failed(claim, place, JobError(code=DEADLINE, message=message))
    made = (*claim.tokens, *tokens)
    message += f": it had {len(made)} of {job.max_tokens} tokens"
    result = failed(claim, place, JobError(code=DEADLINE, message=message))
    return result.model_copy(update={"text": claim.text + text, "tokens": made})


def _result(claim: Claim, place: Place, state: JobState) -> JobResult:
    return JobResult(
        id=claim.job.id,
        kind=claim.job.kind,
        state=state,
        model=claim.job.model,
        engine=place.engine,
        stand_in=place.stand_in,
        pool=place.pool,
        host=place.host,
        device=place.device,
        pid=place.pid,
        attempt=claim.attempt,
        seed=claim.seed,
    )
