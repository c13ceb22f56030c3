"""What the core asks of whoever computes a step. Knows nothing of sequences or sampling."""

from dataclasses import dataclass
from typing import Protocol

import torch
from torch import Tensor

from tensor_llm.config import ModelConfig
from tensor_llm.serving.step import StepBatch


class Flight(Protocol):
    """A step under way."""

    def land(self) -> Tensor:
        """Logits (W, V) of the wanted rows, float32 on the logits' device, or raises what
        went wrong. Waits, unless the executor is asynchronous: then it only queues."""


class Executor(Protocol):
    """A model and its blocks. Steps happen in the order in which they are run; the tensors of a
    batch are left alone until its step has landed. Not thread-safe."""

    config: ModelConfig
    # where a batch's tensors lie
    device: torch.device
    # where logits come out and tokens are chosen
    logits_device: torch.device
    blocks: int
    block_tokens: int
    # run and land queue work on the device and never wait for it
    asynchronous: bool
    # steps that may be under way at once; sequences that decode are in one of them only
    flights: int

    def run(self, batch: StepBatch) -> Flight: ...

    def close(self) -> None:
        """Nothing more comes; lets its threads end."""


@dataclass(frozen=True, slots=True)
class Landed:
    """A step that was over when it began, or is queued on a device that keeps the order."""

    logits_WV: Tensor

    def land(self) -> Tensor:
        return self.logits_WV
