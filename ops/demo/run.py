"""The demo's course between the cluster's start and its end: train and answer at once, stream
one answer, report. Owns the order; text, watching and report are its neighbours."""

import random
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass

from noidle.client import Client
from noidle.errors import JobFailed
from noidle.handle import Job
from noidle.jobs import Generate, JobClass, Train
from noidle.results import JobResult, JobState
from noidle.snapshot import PoolSnapshot
from ops.demo.corpus import Corpus
from ops.demo.report import Report, RoutedJob, Sample, by_engine, fault, quantiles
from ops.demo.show import Show
from ops.demo.watch import Watch
from routing.redis_board import RedisBoard

MODEL = "demo"
JOBS = 48
_WAVES = 8
_PATIENCE_S = 170.0
_TOKENS = (8, 16, 32, 64, 96)
_CLASSES = (JobClass.INTERACTIVE, JobClass.STANDARD, JobClass.BATCH)
_SEED = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of all jobs."""

    question: str
    trained: JobResult
    before: JobResult
    load: Sequence[JobResult]
    after: JobResult
    routed: Sequence[RoutedJob]
    pools: Sequence[PoolSnapshot]
    seconds: float

    @property
    def answers(self) -> list[JobResult]:
        return [self.before, *self.load, self.after]


def perform(client: Client, board: RedisBoard, corpus: Corpus, show: Show) -> Report:
    """Runs all jobs to their ends.

    Raises:
        ResultTimeout: a job did not end in nearly three minutes.
        ClusterUnavailable: Redis stays away.
    """
    with Watch(board.details) as watch:
        outcome = _run(client, board, corpus, show)
    return _report(corpus, outcome, watch)


def _run(client: Client, board: RedisBoard, corpus: Corpus, show: Show) -> Outcome:
    began_s = time.monotonic()
    rng = random.Random(_SEED)
    # 1. the training, and a question to what the model knows before it
    training = client.submit(_training(corpus))
    question = corpus.prompts(1, rng)[0]
    before = client.submit(_answer(question, JobClass.INTERACTIVE, 48))
    # 2. a mixed load while it runs
    load = _send_meanwhile(client, corpus, training, rng, show)
    # 3. the same question to the newest checkpoint
    after = client.submit(_answer(question, JobClass.INTERACTIVE, 48))
    with suppress(JobFailed):
        show.stream(question, after.stream(_PATIENCE_S))
    # 4. every end
    return Outcome(
        question=question,
        trained=training.outcome(_PATIENCE_S),
        before=before.outcome(_PATIENCE_S),
        load=[job.outcome(_PATIENCE_S) for job in load],
        after=after.outcome(_PATIENCE_S),
        routed=[_routed(job) for job in _telling(load)],
        pools=board.pools(),
        seconds=time.monotonic() - began_s,
    )


def _training(corpus: Corpus) -> Train:
    """Two cores need a minute or less for it."""
    return Train(
        id="demo-training",
        model=MODEL,
        path=corpus.path,
        steps=160,
        sequence=128,
        seed=_SEED,
        label="demo",
    )


def _answer(prompt: str, job_class: JobClass, tokens: int) -> Generate:
    return Generate(
        model=MODEL,
        prompt=prompt,
        max_tokens=tokens,
        temperature=0.7,
        top_k=40,
        seed=_SEED,
        job_class=job_class,
        label="demo",
    )


def _send_meanwhile(
    client: Client, corpus: Corpus, training: Job, rng: random.Random, show: Show
) -> list[Job]:
    """One wave of the load for each part of the training that is done."""
    jobs = [
        _answer(prompt, _CLASSES[number % len(_CLASSES)], rng.choice(_TOKENS))
        for number, prompt in enumerate(corpus.prompts(JOBS, rng))
    ]
    size = len(jobs) // _WAVES
    waves = [jobs[at : at + size] for at in range(0, len(jobs), size)]
    sent: list[Job] = []
    # how the training ends is part of the report
    with show.training(_training(corpus).steps) as bar, suppress(JobFailed):
        for event in training.events(_PATIENCE_S):
            bar.show(event)
            while waves and bar.share > 1 - len(waves) / _WAVES:
                sent += client.submit_many(waves.pop(0))
                bar.sent(len(sent))
    for wave in waves:
        sent += client.submit_many(wave)
    return sent


def _telling(jobs: Sequence[Job]) -> list[Job]:
    """One job of each class: the one the router thought about most often."""
    chosen: dict[JobClass, tuple[int, Job]] = {}
    for job in jobs:
        explanation = job.explain()
        job_class, looks = explanation.status.job_class, len(explanation.decisions)
        if job_class not in chosen or looks > chosen[job_class][0]:
            chosen[job_class] = (looks, job)
    return [chosen[job_class][1] for job_class in _CLASSES if job_class in chosen]


def _routed(job: Job) -> RoutedJob:
    explanation = job.explain()
    return RoutedJob(
        job=job.id,
        job_class=explanation.status.job_class,
        pool=explanation.status.pool,
        reasons=str(explanation),
    )


def _report(corpus: Corpus, outcome: Outcome, watch: Watch) -> Report:
    ended = [outcome.trained, *outcome.answers]
    losses = outcome.trained.train
    return Report(
        text=corpus.title,
        stand_ins=tuple(pool.pool for pool in outcome.pools if pool.stand_in),
        jobs=len(ended),
        failed=tuple(fault(result) for result in ended if result.state is not JobState.DONE),
        jobs_by_engine=by_engine(ended),
        revisions=tuple(sorted({one.revision for one in outcome.answers if one.revision})),
        routed=tuple(outcome.routed),
        ttft_ms=quantiles(answer.times.ttft_ms for answer in outcome.answers),
        tpot_ms=quantiles(answer.times.tpot_ms for answer in outcome.answers),
        training_steps=losses.steps if losses else None,
        held_out_loss_before=losses.held_out_loss_before if losses else None,
        held_out_loss=losses.held_out_loss if losses else None,
        unigram_loss=losses.unigram_loss if losses else None,
        before=_sample(outcome.question, outcome.before),
        after=_sample(outcome.question, outcome.after),
        cpu_idle_percent=watch.cpu_idle_percent,
        device_idle_percent=watch.device_idle_percent,
        engine_busy_percent=watch.engine_busy_percent,
        peak_bytes_by_pool=watch.peak_bytes,
        peak_bytes_at_once=watch.peak_at_once_bytes,
        seconds=outcome.seconds,
    )


def _sample(prompt: str, result: JobResult) -> Sample:
    return Sample(prompt=prompt, text=result.text or "", revision=result.revision)
