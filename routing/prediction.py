"""How fast a pool would be. Owns the estimates of speed and of tokens; knows nothing of other
jobs, of queues or of what is free.

A measured rate wins as far as it is sure. What was not measured is guessed from the model's size by
a roofline: a decode step reads all weights once (bandwidth) and computes 2 FLOPs a parameter and
sequence; prefill computes 2 FLOPs a parameter and token; training three times that."""

import math
from dataclasses import dataclass

from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, ModelRates, PoolSnapshot

KV_BLOCK_TOKENS = 16
"""KV cache is counted in blocks of this many tokens, so that an estimate errs upwards."""
GUESS_ERROR = 1.0
"""How far off a guess may be, as a share of it: by e times and more in one of three."""
OTHER_ERROR = 0.5
"""How far off what another model in the pool says may be, its size allowed for."""
UNKNOWN_PARAMETERS = 10_000_000
"""Size assumed of a model that does not tell."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """What an engine is assumed to reach before anything was measured."""

    bytes_per_s: float
    flops_per_s: float
    # per decode step, whatever the model
    overhead_s: float
    load_bytes_per_s: float = 5e8


GUESSES = {
    EngineName.CPU: Hardware(bytes_per_s=1e10, flops_per_s=5e10, overhead_s=0.003),
    EngineName.HYBRID: Hardware(bytes_per_s=3e10, flops_per_s=1e12, overhead_s=0.004),
    EngineName.CUDA: Hardware(bytes_per_s=5e11, flops_per_s=2e13, overhead_s=0.001),
    EngineName.GPU: Hardware(bytes_per_s=3e11, flops_per_s=2.5e13, overhead_s=0.002),
}
"""Deliberately modest: an accelerator that disappoints costs more than one that surprises."""
STAND_IN = Hardware(bytes_per_s=5e9, flops_per_s=1e10, overhead_s=0.004)
"""One CPU thread in an accelerator's place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One pool with one model."""

    # seconds a prompt token
    prefill_s: float
    # prompt tokens a step; infinite: not told
    chunk_tokens: float
    # one decode step takes step_s + step_s_per_sequence * batch
    step_s: float
    step_s_per_sequence: float
    # seconds to bring the model into memory
    load_s: float
    train_tokens_per_s: float


def speed_of(pool: PoolSnapshot, model: ModelInfo) -> Speed:
    """Measured rates as far as they are sure, the roofline's guess where they are not."""
    hardware = STAND_IN if pool.stand_in else GUESSES[pool.engine]
    weight_bytes = _weight_bytes(model)
    token_s, step_s = _guess(hardware, model.parameters, weight_bytes)
    rates = _rates(pool, model, hardware)
    load_bytes_per_s = pool.rates.load_bytes_per_s or hardware.load_bytes_per_s
    measured = rates.prefill_tokens_per_s
    prefill_s = 1 / measured if measured else token_s
    each_s = rates.step_s_per_sequence
    if each_s is None:
        # a step measured as one number says that the batch does not matter
        each_s = token_s if rates.step_s is None else 0.0
    whole_s = step_s if rates.step_s is None else rates.step_s
    doubt = _doubt(whole_s + each_s, step_s + token_s, rates.step_error)
    return Speed(
        prefill_s=prefill_s * _doubt(prefill_s, token_s, rates.prefill_error),
        chunk_tokens=rates.chunk_tokens or math.inf,
        step_s=whole_s * doubt,
        step_s_per_sequence=each_s * doubt,
        load_s=0.0 if built_in(model) else weight_bytes / load_bytes_per_s,
        train_tokens_per_s=pool.rates.train_tokens_per_s or 1 / (3 * token_s),
    )


def _guess(hardware: Hardware, parameters: int | None, weight_bytes: int) -> tuple[float, float]:
    """Seconds a prompt token and a decode step take, the second with a batch of none."""
    token_s = 2 * (parameters or UNKNOWN_PARAMETERS) / hardware.flops_per_s
    return token_s, hardware.overhead_s + weight_bytes / hardware.bytes_per_s


def _weight_bytes(model: ModelInfo) -> int:
    return model.weight_bytes or 4 * (model.parameters or UNKNOWN_PARAMETERS)


def _rates(pool: PoolSnapshot, model: ModelInfo, hardware: Hardware) -> ModelRates:
    """What the pool measured of the model; of one that it never had, what it measured of the one
    it used last, by their sizes, which is less sure."""
    known = pool.rates.models.get(model.name)
    if known is not None or not pool.rates.models:
        return known or pool.rates
    other, size = pool.rates, _weight_bytes(model)
    if other.weight_bytes is None:
        return other
    _, step_s = _guess(hardware, None, size)
    _, others_s = _guess(hardware, None, other.weight_bytes)
    larger, slower = size / other.weight_bytes, step_s / others_s
    return ModelRates(
        prefill_tokens_per_s=_scaled(other.prefill_tokens_per_s, 1 / larger),
        step_s=_scaled(other.step_s, slower),
        step_s_per_sequence=_scaled(other.step_s_per_sequence, larger),
        chunk_tokens=_scaled(other.chunk_tokens, 1 / larger),
        prefill_error=math.hypot(other.prefill_error or 0.0, OTHER_ERROR),
        step_error=math.hypot(other.step_error or 0.0, OTHER_ERROR),
    )


def _scaled(value: float | None, times: float) -> float | None:
    return None if value is None else value * times


def _doubt(measured_s: float, guess_s: float, error: float | None) -> float:
    """By what to multiply a measured time: both are believed as sure as they are, on a logarithmic
    scale, so that one measurement that was disturbed neither draws all work to a pool nor keeps it
    away."""
    if error is None or measured_s <= 0:
        return 1.0
    return float((guess_s / measured_s) ** (error**2 / (error**2 + GUESS_ERROR**2)))


def built_in(model: ModelInfo) -> bool:
    """Part of the engine program: no files, no checkpoints, nothing to load."""
    return model.storage is None and model.planned is None


def prompt_tokens(prompt_bytes: int, model: ModelInfo) -> int:
    """The router holds no tokenizer; the model's mean bytes a token must do."""
    return int(prompt_bytes / max(model.bytes_per_token, 0.25)) + 1


def kv_tokens(prompt: int, max_tokens: int, model: ModelInfo) -> int:
    """Room a run may need in the KV cache, at most the model's context."""
    blocks = -(-(prompt + max_tokens) // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS
    return min(blocks, model.context) if model.context else blocks
