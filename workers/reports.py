"""What a pool's runs did since the board was last told, merged for each run.

Bounded by what the runs may emit, however long the board cannot be told. Knows nothing of
boards or engines."""

from dataclasses import replace

from engines.protocol import RunStep
from routing.board import StepReport
from workers.runs import Run


class Reports:
    """By token; of one thread."""

    def __init__(self) -> None:
        self._reports: dict[str, StepReport] = {}

    def __bool__(self) -> bool:
        return bool(self._reports)

    def all(self) -> dict[str, StepReport]:
        return dict(self._reports)

    def add(self, run: Run, step: RunStep) -> None:
        before = self._reports.get(run.token)
        if before is None:
            before = StepReport(job=run.job_id, token=run.token)
        self._reports[run.token] = replace(
            before,
            text=before.text + step.text,
            tokens=before.tokens + step.tokens,
            revision=step.revision or before.revision,
            step=before.step if step.step is None else step.step,
            goal=before.goal if step.goal is None else step.goal,
            loss=before.loss if step.loss is None else step.loss,
            tokens_per_s=before.tokens_per_s if step.tokens_per_s is None else step.tokens_per_s,
        )

    def drop(self, token: str) -> None:
        self._reports.pop(token, None)

    def clear(self) -> None:
        self._reports.clear()
