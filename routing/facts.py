"""What a pool is to one model, and to jobs that are alike, as columns with a row a pool. Owns what
changes only when a pool says something new of itself; knows nothing of time or of leases."""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from noidle.snapshot import ModelInfo, PoolSnapshot
from routing.board import HeldJob
from routing.gate import standing_refusal, weights_of
from routing.prediction import speed_of

Column = NDArray[np.float64]
Marks = NDArray[np.bool_]


TYPICAL_CHUNK = 2048
"""Tokens of a prompt that a step reads at most, where a pool does not tell."""


class LaneFacts:
    """One model in every pool: how fast, and what it takes of memory."""

    COLUMNS = (
        "prefill_s",
        "part_tokens",
        "part_s",
        "step_s",
        "sequence_s",
        "load_s",
        "load_bytes",
        "kv_bytes",
        "run_bytes",
        "kv_limit",
        "train_tokens_per_s",
    )

    def __init__(self, job: HeldJob, model: ModelInfo, pools: tuple[PoolSnapshot, ...]) -> None:
        self._job = job
        self._model = model
        self._table = np.zeros((len(self.COLUMNS), len(pools)))
        # of all pools; infinite where there is none
        self.kv_least = math.inf
        (
            # seconds a prompt token; tokens of prompts that one step reads, and their seconds
            self.prefill_s,
            self.part_tokens,
            self.part_s,
            self.step_s,
            self.sequence_s,
            self.load_s,
            self.load_bytes,
            self.kv_bytes,
            # what a run needs beside weights and KV cache
            self.run_bytes,
            # tokens of KV cache in all; infinite where the pool does not bound this model's
            self.kv_limit,
            self.train_tokens_per_s,
        ) = self._table
        # rows of pools that said something new since
        self.behind = set(range(len(pools)))

    def catch_up(self, pools: tuple[PoolSnapshot, ...]) -> None:
        if self.behind:
            for i in self.behind:
                self.set(i, pools[i])
            self.behind.clear()
            self.kv_least = float(self.kv_limit.min())

    def set(self, i: int, pool: PoolSnapshot) -> None:
        model, speed = self._model, speed_of(pool, self._model)
        part = min(speed.chunk_tokens, TYPICAL_CHUNK)
        # tokens of other models tell nothing of how many this one would get
        bounded = model.name in pool.loaded or not pool.loaded
        total = pool.kv_tokens_total if bounded else None
        # where a pool bounds KV by tokens, it has allocated that memory already
        free = total is not None or self._job.kind == "train"
        self._table[:, i] = (
            speed.prefill_s,
            part,
            part * speed.prefill_s,
            speed.step_s,
            speed.step_s_per_sequence,
            0.0 if model.name in pool.loaded else speed.load_s,
            weights_of(self._job, pool, model),
            0 if free else model.kv_bytes_per_token or 0,
            pool.working_bytes or 0,
            math.inf if total is None else total,
            speed.train_tokens_per_s,
        )


class SceneFacts:
    """Which pools could run jobs that are alike in kind, model, wish and storage, so far as that
    does not change with time or load."""

    def __init__(self, job: HeldJob, model: ModelInfo, pools: tuple[PoolSnapshot, ...]) -> None:
        self.model = model
        self._job = job
        count = len(pools)
        self.refused: Marks = np.zeros(count, bool)
        self.lasting: Marks = np.zeros(count, bool)
        # by which of the reasons each pool is refused
        self.codes: NDArray[np.intp] = np.zeros(count, np.intp)
        self.reasons: list[str] = []
        # pools that are alike to the gate are asked about once
        self._known: dict[Any, tuple[bool, bool, int]] = {}
        # rows of pools that said something new since
        self.behind = set(range(len(pools)))

    def catch_up(self, pools: tuple[PoolSnapshot, ...]) -> None:
        for i in self.behind:
            self.set(i, pools[i])
        self.behind.clear()

    def set(self, i: int, pool: PoolSnapshot) -> None:
        gist = _to_gate(pool)
        found = self._known.get(gist)
        if found is None:
            no = standing_refusal(self._job, pool, self.model)
            code = 0 if no is None else self._code(no.reason)
            found = self._known[gist] = no is not None, no is not None and no.lasting, code
        self.refused[i], self.lasting[i], self.codes[i] = found

    def _code(self, reason: str) -> int:
        if reason not in self.reasons:
            self.reasons.append(reason)
        return self.reasons.index(reason)


def _to_gate(pool: PoolSnapshot) -> tuple[Any, ...]:
    """All that a standing refusal depends on."""
    return (
        pool.engine,
        pool.state,
        pool.pressure,
        pool.kinds,
        pool.models,
        pool.storage,
    )
