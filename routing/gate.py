"""Which pools could run a job at all. Owns the refusals and their words; knows nothing of
predictions or of other jobs.

A lasting refusal stands as long as pool and job are what they are; a passing one may be gone
at the next look. A job that meets only lasting ones is unplaceable."""

from dataclasses import dataclass

from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState, Pressure
from routing.board import HeldJob
from routing.prediction import built_in

STALE_MS = 3000
"""A pool that said nothing for this long counts as full."""
TRAINING_WEIGHTS = 4
"""Training holds weights, gradients and the optimiser's two moments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Refused:
    """Why a pool may not run a job, in words with figures."""

    reason: str
    lasting: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Room:
    """What the gate must know besides the snapshot."""

    now_ms: int
    # free memory and what idle models may give back; absent: not known
    memory_bytes: int | None
    # nothing is leased there
    idle: bool


def refusal(job: HeldJob, pool: PoolSnapshot, model: ModelInfo, room: Room) -> Refused | None:
    """What rules the pool out for every job of this kind, model, wish and storage, or None.

    Lasting reasons come before passing ones, so that a pool that could never run the job does
    not seem to be only in trouble for a moment.
    """
    return (
        _misfit(job, pool, model)
        or _weights(job, pool, model, room)
        or _state(pool)
        or _stale(pool, room)
        or _pressure(job, pool)
        or _revision(job, model)
    )


def standing_refusal(job: HeldJob, pool: PoolSnapshot, model: ModelInfo) -> Refused | None:
    """The same, so far as neither time nor what is leased matters."""
    return (
        _misfit(job, pool, model) or _state(pool) or _pressure(job, pool) or _revision(job, model)
    )


def _misfit(job: HeldJob, pool: PoolSnapshot, model: ModelInfo) -> Refused | None:
    return (
        _wish(job, pool)
        or _starting(pool)
        or _kind(job, pool)
        or _files(job, pool, model)
        or _failed(pool)
    )


def too_long(job: HeldJob, model: ModelInfo) -> Refused | None:
    """Only what is certain without a tokenizer; the engine measures the prompt itself."""
    if model.context is None or job.max_tokens < model.context:
        return None
    return _lasting(
        f"{job.max_tokens} tokens to generate do not fit the context of {model.name}, "
        f"{model.context} tokens with the prompt"
    )


def kv_too_small(kv_tokens: int, pool: PoolSnapshot) -> Refused:
    return _lasting(
        f"needs KV cache for {kv_tokens} tokens, the pool has {pool.kv_tokens_total} in all"
    )


def weights_of(job: HeldJob, pool: PoolSnapshot, model: ModelInfo) -> int:
    """Bytes the job's model would newly take in the pool; 0 if loaded or not known."""
    if model.name in pool.loaded and job.kind != "train":
        return 0
    return (model.weight_bytes or 0) * (TRAINING_WEIGHTS if job.kind == "train" else 1)


def _lasting(reason: str) -> Refused:
    return Refused(reason=reason, lasting=True)


def _passing(reason: str) -> Refused:
    return Refused(reason=reason, lasting=False)


def _wish(job: HeldJob, pool: PoolSnapshot) -> Refused | None:
    if job.engine is None or job.engine == pool.engine:
        return None
    return _lasting(f"the job wants engine {job.engine}, this is {pool.engine}")


def _starting(pool: PoolSnapshot) -> Refused | None:
    if pool.state is not PoolState.STARTING:
        return None
    return _passing(f"is starting{_because(pool)}")


def _failed(pool: PoolSnapshot) -> Refused | None:
    if pool.state is not PoolState.FAILED:
        return None
    return _lasting(f"its engine cannot start{_because(pool)}")


def _state(pool: PoolSnapshot) -> Refused | None:
    if pool.state is PoolState.READY:
        return None
    return _passing(f"is {pool.state}{_because(pool)}")


def _because(pool: PoolSnapshot) -> str:
    return f": {pool.why}" if pool.why else ""


def _kind(job: HeldJob, pool: PoolSnapshot) -> Refused | None:
    if job.kind in pool.kinds:
        return None
    return _lasting(f"its engine does not {job.kind}; it can {', '.join(pool.kinds)}")


def _files(job: HeldJob, pool: PoolSnapshot, model: ModelInfo) -> Refused | None:
    reads = f"it reads {pool.storage or 'none'}"
    if job.storage is not None and job.storage != pool.storage:
        return _lasting(f"cannot read the job's checkpoint on storage {job.storage}, {reads}")
    if model.name in pool.models:
        return None
    if model.storage is not None:
        if model.storage == pool.storage:
            return None
        return _lasting(f"cannot read model {model.name} on storage {model.storage}, {reads}")
    if job.kind == "train":
        return None if pool.storage else _lasting("has no storage for a model's checkpoints")
    return None if model.planned else _lasting(f"does not have model {model.name}")


def _weights(job: HeldJob, pool: PoolSnapshot, model: ModelInfo, room: Room) -> Refused | None:
    need = weights_of(job, pool, model)
    if not need or room.memory_bytes is None or need <= room.memory_bytes:
        return None
    words = f"{model.name} needs {_size(need)} of memory, {_size(room.memory_bytes)} can be had"
    return _lasting(f"{words} and nothing runs there") if room.idle else _passing(words)


def _size(size: int) -> str:
    return f"{size / 2**30:.1f} GiB" if size >= 2**30 else f"{size / 2**20:.0f} MiB"


def _stale(pool: PoolSnapshot, room: Room) -> Refused | None:
    age_ms = room.now_ms - pool.published_ms
    # 0: not told; the board's own time-to-live vouches for it
    if not pool.published_ms or age_ms <= STALE_MS:
        return None
    return _passing(f"was last heard of {age_ms / 1000:.1f} s ago; that counts as full")


def _pressure(job: HeldJob, pool: PoolSnapshot) -> Refused | None:
    if pool.pressure is Pressure.HARD:
        return _passing(f"is under hard memory pressure{_because(pool)}")
    if pool.pressure is Pressure.SOFT and job.kind == "train":
        return _passing(f"is under soft memory pressure and takes no training{_because(pool)}")
    return None


def _revision(job: HeldJob, model: ModelInfo) -> Refused | None:
    if job.kind == "train" or built_in(model) or model.revision is not None:
        return None
    training = f"; job {model.planned} is to write it" if model.planned else ""
    return _passing(f"has no checkpoint of model {model.name} yet{training}")
