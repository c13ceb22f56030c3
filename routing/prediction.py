"""How fast a pool would be. Owns the estimates of speed and of tokens; knows nothing of other
jobs, of queues or of what is free.

A measured rate always wins. What was not measured is guessed from the model's size by a
roofline: a decode step reads all weights once (bandwidth) and computes 2 FLOPs a parameter and
sequence; prefill computes 2 FLOPs a parameter and token; training three times that."""

import math
from dataclasses import dataclass

from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, PoolSnapshot

KV_BLOCK_TOKENS = 16
"""KV cache is counted in blocks of this many tokens, so that an estimate errs upwards."""
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
    """Measured rates where the pool has them, the roofline's guess where not."""
    guess = STAND_IN if pool.stand_in else GUESSES[pool.engine]
    rates = pool.rates
    parameters = model.parameters or UNKNOWN_PARAMETERS
    weight_bytes = model.weight_bytes or 4 * parameters
    load_bytes_per_s = rates.load_bytes_per_s or guess.load_bytes_per_s
    token_s = 2 * parameters / guess.flops_per_s
    step_s = guess.overhead_s + weight_bytes / guess.bytes_per_s
    prefill = rates.prefill_tokens_per_s
    return Speed(
        prefill_s=1 / prefill if prefill else token_s,
        chunk_tokens=rates.chunk_tokens or math.inf,
        step_s=step_s if rates.step_s is None else rates.step_s,
        step_s_per_sequence=_per_sequence(pool, token_s),
        load_s=0.0 if built_in(model) else weight_bytes / load_bytes_per_s,
        train_tokens_per_s=rates.train_tokens_per_s or 1 / (3 * token_s),
    )


def built_in(model: ModelInfo) -> bool:
    """Part of the engine program: no files, no checkpoints, nothing to load."""
    return model.storage is None and model.planned is None


def _per_sequence(pool: PoolSnapshot, token_s: float) -> float:
    if pool.rates.step_s_per_sequence is not None:
        return pool.rates.step_s_per_sequence
    # a step measured as one number says that the batch does not matter
    return token_s if pool.rates.step_s is None else 0.0


def prompt_tokens(prompt_bytes: int, model: ModelInfo) -> int:
    """The router holds no tokenizer; the model's mean bytes a token must do."""
    return int(prompt_bytes / max(model.bytes_per_token, 0.25)) + 1


def kv_tokens(prompt: int, max_tokens: int, model: ModelInfo) -> int:
    """Room a run may need in the KV cache, at most the model's context."""
    blocks = -(-(prompt + max_tokens) // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS
    return min(blocks, model.context) if model.context else blocks
