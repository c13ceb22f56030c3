"""What a training job asks for, as numbers that stay the same from its first step to its last.

Owns the course of the learning rate. Knows nothing of tensors."""

import math
from dataclasses import dataclass

from noidle.errors import InvalidJob
from noidle.jobs import Train
from tensor_llm.config import ModelConfig

# the cosine ends at this share of the learning rate
_FINAL_SHARE = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainPlan:
    """What decides a loss curve, beside the first weights and the text."""

    seed: int
    steps: int
    # sequences an optimiser step, in `accumulate` equal parts
    batch: int
    accumulate: int
    # tokens a sequence
    sequence: int
    learning_rate: float
    warmup_steps: int
    weight_decay: float
    clip_norm: float

    @classmethod
    def of_job(cls, job: Train, *, seed: int, config: ModelConfig) -> "TrainPlan":
        """
        Raises:
            InvalidJob: the sequence does not fit the model's context.
        """
        sequence = job.sequence or config.context
        if sequence > config.context:
            allowed = f"at most the model's context, {config.context}"
            raise InvalidJob.of("sequence", sequence, allowed)
        return cls(
            seed=seed,
            steps=job.steps,
            batch=job.batch,
            accumulate=job.accumulate,
            sequence=sequence,
            learning_rate=job.learning_rate or min(0.01, 1 / config.hidden),
            warmup_steps=job.warmup_steps,
            weight_decay=job.weight_decay,
            clip_norm=job.clip_norm,
        )

    def learning_rate_at(self, step: int) -> float:
        """Linear warm-up, then a cosine down to a tenth; `step` counts from 0."""
        if step < self.warmup_steps:
            return self.learning_rate * (step + 1) / self.warmup_steps
        done = (step - self.warmup_steps) / max(1, self.steps - self.warmup_steps)
        cosine = 0.5 * (1 + math.cos(math.pi * min(1.0, done)))
        return self.learning_rate * (_FINAL_SHARE + (1 - _FINAL_SHARE) * cosine)
