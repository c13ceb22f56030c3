"""When a job would end in each pool that could run it, and where it ends first.

Owns the comparison; knows nothing of the gate, or of what a choice then takes away."""

from collections.abc import Sequence

from noidle.jobs import EngineName, JobClass
from routing.board import HeldJob
from routing.outlook import Lane
from routing.placement import Cause, Forecast, Need, Scene

SLICE_S = 5.0
"""Length assumed of a training slice."""


def forecast(
    job: HeldJob, scene: Scene, lanes: Sequence[Lane], need: Need
) -> tuple[list[Forecast], int]:
    """A forecast for each lane, and the index of the best."""
    if job.kind == "train":
        return _train(job, scene, lanes)
    if job.alone:
        forecasts = [_alone(job, lane, need) for lane in lanes]
        return forecasts, min(range(len(lanes)), key=lambda i: forecasts[i][:2])
    return _run(job, lanes, need)


def _run(job: HeldJob, lanes: Sequence[Lane], need: Need) -> tuple[list[Forecast], int]:
    """Jobs × pools pass through this loop: no calls on its usual way."""
    free, full = Cause.FREE, Cause.FULL
    background = job.job_class is JobClass.BACKGROUND
    prompt, kv = need
    tokens = job.max_tokens
    forecasts: list[Forecast] = []
    best = 0
    best_s = best_start_s = float("inf")
    for lane in lanes:
        look = lane.look
        slots = look.free
        if slots <= 0:
            start_s, cause, batch = look.next_s, full, look.slots
        elif (
            kv * lane.kv_counts <= look.kv_open
            and lane.load_bytes + kv * lane.kv_bytes <= look.memory_open
            and not (background and slots <= look.spare)
        ):
            start_s, cause, batch = 0.0, free, look.busy + 1
        else:
            start_s, cause, batch = _narrow(job, lane, need)
        ready_s = lane.ready_s
        finish_s = (
            (ready_s if ready_s > start_s else start_s)
            + lane.load_s
            + prompt * lane.prefill_s
            + tokens * (lane.step_s + lane.sequence_s * batch)
        )
        if finish_s <= best_s and (finish_s < best_s or start_s < best_start_s):
            best, best_s, best_start_s = len(forecasts), finish_s, start_s
        forecasts.append((finish_s, start_s, cause, batch))
    return forecasts, best


def _narrow(job: HeldJob, lane: Lane, need: Need) -> tuple[float, Cause, int]:
    """A slot is free and yet the job does not just fit."""
    look = lane.look
    if job.job_class is JobClass.BACKGROUND and look.free <= look.spare:
        return look.next_s, Cause.SPARE, look.slots
    if not _memory_fits(lane, need):
        return look.next_s, Cause.MEMORY, look.busy
    if need.kv_tokens * lane.kv_counts > look.kv_free:
        return look.next_s, Cause.KV, look.busy
    batch = look.busy + 1
    if ready_s(lane, 0.0) + _work_s(job, lane, need, batch) <= look.fence_s:
        return 0.0, Cause.FREE, batch
    return look.fence_s, Cause.FENCED, batch


def _alone(job: HeldJob, lane: Lane, need: Need) -> Forecast:
    """It starts once the pool is empty, and nothing joins it."""
    look = lane.look
    start_s, cause = look.all_free_s(), Cause.ALONE
    if look.busy == 0 and look.kv_open >= 0 and _memory_fits(lane, need):
        start_s, cause = 0.0, Cause.FREE
    return ready_s(lane, start_s) + _work_s(job, lane, need, 1), start_s, cause, 1


def _train(job: HeldJob, scene: Scene, lanes: Sequence[Lane]) -> tuple[list[Forecast], int]:
    """A slice takes its time wherever it runs. What differs is how far it comes: the best pool
    is where the training falls least behind one on the fastest pool at once."""
    forecasts: list[Forecast] = []
    behind: list[tuple[float, float, bool]] = []
    for lane in lanes:
        start_s, cause = _train_start(job, lane)
        finish_s = ready_s(lane, start_s) + SLICE_S
        forecasts.append((finish_s, start_s, cause, lane.look.busy + 1))
        lost_s = SLICE_S * (1 - lane.train_tokens_per_s / scene.train_tokens_per_s)
        elsewhere = lane.look.pool.engine is not EngineName.GPU
        behind.append((finish_s - SLICE_S + lost_s, start_s, elsewhere))
    return forecasts, min(range(len(lanes)), key=behind.__getitem__)


def _train_start(job: HeldJob, lane: Lane) -> tuple[float, Cause]:
    look = lane.look
    if look.training_s > 0:
        return look.training_s, Cause.TRAINING
    if job.alone and look.busy:
        return look.all_free_s(), Cause.ALONE
    if look.free <= 0:
        return look.next_s, Cause.FULL
    if job.job_class is JobClass.BACKGROUND and look.free <= look.spare:
        return look.next_s, Cause.SPARE
    if lane.load_bytes > look.memory_open:
        return look.next_s, Cause.MEMORY
    return (0.0, Cause.FREE) if look.fence_s > SLICE_S else (look.fence_s, Cause.FENCED)


def _memory_fits(lane: Lane, need: Need) -> bool:
    return lane.load_bytes + need.kv_tokens * lane.kv_bytes <= lane.look.memory_open


def _work_s(job: HeldJob, lane: Lane, need: Need, batch: int) -> float:
    step_s = lane.step_s + lane.sequence_s * batch
    return need.prompt * lane.prefill_s + job.max_tokens * step_s


def ready_s(lane: Lane, start_s: float) -> float:
    """When a job that gets its slot at `start_s` finds its model in memory."""
    return max(start_s, lane.ready_s) + lane.load_s
