"""Training a decoder, one optimiser step at a time, so that the caller may stop after any of
them and go on later with the same loss curve.

Knows nothing of files, slices or jobs.

Letters: B sequences of a batch, T tokens of a sequence."""

import dataclasses
import math
from collections.abc import Generator
from typing import TypeVar

import torch
import torch.nn.functional as F
from torch import Tensor

from noidle.errors import CheckpointError, InvalidJob
from noidle.results import TrainReport
from tensor_llm.data import Corpus
from tensor_llm.model import Decoder
from tensor_llm.train_plan import TrainPlan
from tensor_llm.train_state import STATE_FILE, TrainState

Result = TypeVar("Result")
Parts = Generator[None, None, Result]
"""Work that pauses between its parts and returns its result at the end."""

# AdamW (Loshchilov and Hutter 2019)
_BETAS = (0.9, 0.95)
_EPSILON = 1e-8


class Trainer:
    """Trains `model` in place: `step` until `done`, `state` whenever a checkpoint is due.

    `autocast` computes in a narrower type; weights and moments stay as they are. A part of a
    step reads at most `part_tokens` tokens, or one sequence.
    """

    def __init__(
        self,
        model: Decoder,
        corpus: Corpus,
        plan: TrainPlan,
        *,
        base_step: int = 0,
        state: TrainState | None = None,
        autocast: torch.dtype | None = None,
        part_tokens: int | None = None,
    ) -> None:
        """
        Raises:
            InvalidJob: the text is too short for the plan.
            CheckpointError: `state` belongs to another plan or text.
        """
        corpus.check(plan.sequence)
        self.model = model.train()
        self.plan = plan
        self._corpus = corpus
        self._digest = corpus.digest()
        self._device = next(model.parameters()).device
        self._autocast = autocast
        # sequences computed at once
        self._part = plan.batch // plan.accumulate
        if part_tokens is not None:
            parts = math.ceil(self._part / max(1, part_tokens // plan.sequence))
            self._part = math.ceil(self._part / parts)
        self._base_step = base_step
        self._step = 0
        self._loss: float | None = None
        self._loss_before: float | None = None
        self._optimizer = _optimizer(model, plan)
        if state is not None:
            self._resume(state)

    @property
    def steps_done(self) -> int:
        return self._step

    @property
    def model_step(self) -> int:
        """Steps the weights have seen over all jobs; names revisions."""
        return self._base_step + self._step

    @property
    def done(self) -> bool:
        return self._step >= self.plan.steps

    @property
    def tokens_per_step(self) -> int:
        return self.plan.batch * self.plan.sequence

    def step(self) -> float:
        """One optimiser step; returns its mean training loss in nats a token.

        Raises:
            InvalidJob: the loss is no longer a number.
        """
        return _whole(self.step_parts())

    def step_parts(self) -> Parts[float]:
        """The same in parts of one forward and backward pass each, so that the caller may do
        other work between; left unfinished, nothing has changed."""
        assert not self.done
        if self._loss_before is None:
            self._loss_before = yield from self.evaluate_parts()
        for group in self._optimizer.param_groups:
            group["lr"] = self.plan.learning_rate_at(self._step)
        loss = yield from self._gradients()
        if not math.isfinite(loss):
            fault = f"lower: at step {self._step + 1} the loss was {loss}"
            raise InvalidJob.of("learning_rate", self.plan.learning_rate, fault)
        torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.plan.clip_norm)
        self._optimizer.step()
        self._step, self._loss = self._step + 1, loss
        return loss

    def evaluate(self) -> float:
        """Mean nats a token over the held-out text."""
        return _whole(self.evaluate_parts())

    def evaluate_parts(self) -> Parts[float]:
        """The same in parts of one forward pass each."""
        total = torch.zeros((), device=self._device)
        count = 0
        for input_BT, target_BT in self._held_out_batches():
            with torch.no_grad():
                total += self._loss_of(input_BT, target_BT) * target_BT.numel()
            count += target_BT.numel()
            yield
        return float(total) / count

    def report(self) -> TrainReport:
        """Where training stands; measures the held-out loss."""
        return _whole(self.report_parts())

    def report_parts(self) -> Parts[TrainReport]:
        """The same in parts of one forward pass each."""
        held_out_loss = yield from self.evaluate_parts()
        return TrainReport(
            steps=self._step,
            train_loss=self._loss,
            held_out_loss_before=self._loss_before,
            held_out_loss=held_out_loss,
            unigram_loss=self._corpus.unigram_loss(),
            tokens_seen=self._step * self.tokens_per_step,
        )

    def state(self) -> TrainState:
        """What `Trainer(state=…)` needs to go on; shares memory with the optimiser."""
        moments = {
            # before the first step the optimiser holds none yet
            name: self._optimizer.state[parameter]
            or {moment: torch.zeros_like(parameter) for moment in ("exp_avg", "exp_avg_sq")}
            for name, parameter in self.model.named_parameters()
        }
        return TrainState(
            step=self._step,
            base_step=self._base_step,
            plan=dataclasses.asdict(self.plan),
            corpus=self._digest,
            loss=self._loss,
            held_out_loss_before=self._loss_before,
            first={name: moment["exp_avg"] for name, moment in moments.items()},
            second={name: moment["exp_avg_sq"] for name, moment in moments.items()},
        )

    def _resume(self, state: TrainState) -> None:
        if state.plan != dataclasses.asdict(self.plan):
            raise CheckpointError.of(STATE_FILE, "belongs to a job with other settings", "plan")
        if state.corpus != self._digest:
            raise CheckpointError.of(STATE_FILE, "the text has changed since; send a new job")
        self._step, self._base_step = state.step, state.base_step
        self._loss, self._loss_before = state.loss, state.held_out_loss_before
        for name, parameter in self.model.named_parameters():
            self._optimizer.state[parameter] = {
                "step": torch.tensor(float(state.step), device=self._device),
                "exp_avg": state.first[name].to(self._device, copy=True),
                "exp_avg_sq": state.second[name].to(self._device, copy=True),
            }

    def _gradients(self) -> Parts[float]:
        self._optimizer.zero_grad(set_to_none=True)
        plan = self.plan
        input_BT, target_BT = self._corpus.batch(
            seed=plan.seed, step=self._step, batch=plan.batch, sequence=plan.sequence
        )
        total = torch.zeros((), device=self._device)
        for part_BT, wanted_BT in zip(
            torch.split(input_BT, self._part), torch.split(target_BT, self._part), strict=True
        ):
            loss = self._loss_of(part_BT, wanted_BT) * (len(part_BT) / plan.batch)
            loss.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            total += loss.detach()
            yield
        return float(total)

    def _loss_of(self, input_BT: Tensor, target_BT: Tensor) -> Tensor:
        input_BT, target_BT = input_BT.to(self._device), target_BT.to(self._device)
        with torch.autocast(
            self._device.type, dtype=self._autocast, enabled=self._autocast is not None
        ):
            logits_BTV: Tensor = self.model(input_BT)
        return F.cross_entropy(logits_BTV.flatten(0, 1), target_BT.flatten())

    def _held_out_batches(self) -> list[tuple[Tensor, Tensor]]:
        """Whole windows in batches of a part, and the shorter last one alone."""
        windows = self._corpus.windows(self.plan.sequence)
        whole = [window for window in windows if len(window[0]) == self.plan.sequence]
        groups = [whole[i : i + self._part] for i in range(0, len(whole), self._part)]
        groups += [[window] for window in windows[len(whole) :]]
        return [
            (torch.stack([i for i, _ in group]), torch.stack([t for _, t in group]))
            for group in groups
        ]


def _optimizer(model: Decoder, plan: TrainPlan) -> torch.optim.AdamW:
    matrices = [p for p in model.parameters() if p.dim() > 1]
    # norms have nothing that decay should shrink
    vectors = [p for p in model.parameters() if p.dim() <= 1]
    return torch.optim.AdamW(
        [
            {"params": matrices, "weight_decay": plan.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=plan.learning_rate,
        betas=_BETAS,
        eps=_EPSILON,
        fused=True,
    )


def _whole(parts: Parts[Result]) -> Result:
    while True:
        try:
            next(parts)
        except StopIteration as end:
            result: Result = end.value
            return result
