"""A slice of a train run: its loss falls on a fixed curve, its checkpoints hold only a step.

Owns the files of echo models; knows nothing of the loop."""

import json
import math
import os
import time

from engines.echo.described import Described, JobFault, Json


class Lesson:
    """Goes on where the checkpoint says, from step 0 without one."""

    prefill_left = kv_tokens = 0

    def __init__(self, start: Json, described: Described) -> None:
        job, checkpoint = start["job"], start.get("checkpoint")
        self.model, self._described = job["model"], described
        self._goal, self._slice_s = job.get("steps", 200), job.get("slice_s", 5.0)
        self._folder = described.data / "models" / self.model
        self._token8 = start.get("token8", "00000000")
        self._began = time.monotonic()
        self.fresh = checkpoint is None
        # its slice is to end with the step it is in
        self.pausing = False
        self._first = self._done = checkpoint["step"] if checkpoint else 0
        if checkpoint and not (self._folder / checkpoint["name"] / "echo.json").is_file():
            raise JobFault.of("checkpoint", checkpoint["name"], f"a revision in {self._folder}")

    @property
    def moved(self) -> bool:
        return self._done > self._first

    @property
    def over(self) -> bool:
        return self.moved and (self.pausing or time.monotonic() - self._began >= self._slice_s)

    def step(self) -> tuple[Json, Json | None]:
        time.sleep(self._described.train_step_s)
        self._done += 1
        step = {"step": self._done, "goal": self._goal, "loss": self._loss(self._done)}
        if self._done < self._goal:
            return step, None
        report = {
            "steps": self._done,
            "train_loss": self._loss(self._done),
            "held_out_loss_before": self._loss(0),
            "held_out_loss": self._loss(self._done),
            "unigram_loss": 4.0,
        }
        return step, {"train": report, "model": self.model, "revision": self._name()}

    def save(self) -> Json:
        """Writes a checkpoint and makes it the newest; the model as others may use it."""
        name = self._name()
        (self._folder / name).mkdir(parents=True, exist_ok=True)
        (self._folder / name / "echo.json").write_text(json.dumps({"step": self._done}))
        draft = self._folder / f"current.{os.getpid()}"
        draft.write_text(name)
        draft.replace(self._folder / "current")
        return self._described.model_info(self.model, name)

    def end_slice(self) -> Json:
        model = self.save()
        place = {"storage": self._described.storage, "step": self._done}
        return {
            "checkpoint": {"name": model["revision"], **place},
            "model": model,
            "service_s": time.monotonic() - self._began,
        }

    def _name(self) -> str:
        return f"step-{self._done:06d}-{self._token8}"

    def _loss(self, step: int) -> float:
        return 2 + 3 * math.exp(-step / 50)
