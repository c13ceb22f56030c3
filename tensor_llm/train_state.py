"""What training needs, beside the weights, to go on as if it had never stopped.

Owns its two files in a revision: training.safetensors with the optimiser's moments and
training.json with the rest. Knows nothing of how steps are made.

Random numbers need no state: batches are drawn by (seed, step)."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from noidle.errors import CheckpointError
from tensor_llm.store import ModelStore, read_json
from tensor_llm.weights import read_tensors, write_tensors

STATE_FILE = "training.json"
MOMENTS_FILE = "training.safetensors"
UNFINISHED_KEPT = 8
"""Runs of one model that may go on; a cancelled one cannot be told from one that waits."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainState:
    """Where a training job stands after `step` of its steps."""

    step: int
    # steps the weights had seen before this job began
    base_step: int
    # the job's TrainPlan, and a digest of its tokens: neither may change on the way
    plan: dict[str, Any]
    corpus: str
    loss: float | None
    held_out_loss_before: float | None
    # AdamW's first and second moment by parameter name
    first: Mapping[str, Tensor]
    second: Mapping[str, Tensor]

    def write(self, folder: Path) -> None:
        moments = {f"first.{name}": tensor for name, tensor in self.first.items()}
        moments |= {f"second.{name}": tensor for name, tensor in self.second.items()}
        write_tensors(moments, folder / MOMENTS_FILE)
        facts = {
            "step": self.step,
            "base_step": self.base_step,
            "plan": self.plan,
            "corpus": self.corpus,
            "loss": self.loss,
            "held_out_loss_before": self.held_out_loss_before,
        }
        (folder / STATE_FILE).write_text(json.dumps(facts, indent=1))

    @classmethod
    def read(cls, folder: Path, shapes: Mapping[str, tuple[int, ...]]) -> "TrainState | None":
        """The state in a revision whose parameters have these shapes; None if it has none.

        Raises:
            CheckpointError: naming the file, and the field or tensor, that cannot be used.
        """
        if not (folder / STATE_FILE).exists():
            return None
        facts = read_json(folder / STATE_FILE)
        wanted = {f"{moment}.{name}": s for moment in _MOMENTS for name, s in shapes.items()}
        moments = dict(
            read_tensors(folder / MOMENTS_FILE, wanted, device_of=lambda _: torch.device("cpu"))
        )
        path = folder / STATE_FILE
        return cls(
            step=_field(facts, "step", int, path),
            base_step=_field(facts, "base_step", int, path),
            plan=_field(facts, "plan", dict, path),
            corpus=_field(facts, "corpus", str, path),
            loss=_optional(facts, "loss", path),
            held_out_loss_before=_optional(facts, "held_out_loss_before", path),
            first={name: moments[f"first.{name}"] for name in shapes},
            second={name: moments[f"second.{name}"] for name in shapes},
        )


def last_of_unfinished(store: ModelStore, name: str) -> list[str]:
    """The last revision of each run that has steps to make, of the eight that wrote last."""
    last: dict[str, tuple[int, str]] = {}
    for revision in store.revisions(name):
        try:
            path = store.directory(name, revision) / STATE_FILE
            facts = read_json(path)
            plan = _field(facts, "plan", dict, path)
            unfinished = _field(facts, "step", int, path) < _field(plan, "steps", int, path)
            written = path.stat().st_mtime_ns
        # no training state, or none that could be used
        except (CheckpointError, OSError):
            continue
        run = json.dumps([plan, facts.get("corpus"), facts.get("base_step")], sort_keys=True)
        # later steps of a run come later
        last.pop(run, None)
        if unfinished:
            last[run] = (written, revision)
    return [revision for _, revision in sorted(last.values())[-UNFINISHED_KEPT:]]


_MOMENTS = ("first", "second")


def _field(facts: dict[str, Any], name: str, kind: type, path: Path) -> Any:
    value = facts.get(name)
    if type(value) is not kind:
        raise CheckpointError.of(path, f"{str(value)[:80]}: allowed is {kind.__name__}", name)
    return value


def _optional(facts: dict[str, Any], name: str, path: Path) -> float | None:
    return None if facts.get(name) is None else _field(facts, name, float, path)
