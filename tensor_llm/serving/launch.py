"""A step on its way: launched, its tokens chosen on the device, read when it lands.

Owns the order of work on the device. Knows nothing of why these sequences move together.

Letters: S rows of the block table, W rows whose logits are wanted, B those that choose a token,
V vocabulary."""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from tensor_llm.sampling import logprobs, sample
from tensor_llm.serving.executor import Executor, Flight
from tensor_llm.serving.fault import is_fatal
from tensor_llm.serving.scheduler import Plan
from tensor_llm.serving.staging import Staged, Staging
from tensor_llm.serving.table import BlockTable
from tensor_llm.upload import Download


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """What a step gave: for each chooser a token, and log-probabilities where any wants them;
    for each scored token its own."""

    tokens: list[int]
    logprobs: list[float] | None
    scores: list[float]


class Launch:
    """One step under way."""

    def __init__(self, plan: Plan, staging: Staging, began_s: float) -> None:
        self.plan, self.staging, self.began_s = plan, staging, began_s
        self.staged: Staged | None = None
        self.flight: Flight | None = None
        self.download: Download | None = None
        # what went wrong already when it began
        self.error: Exception | None = None


class Launcher:
    """Starts steps on one executor and brings home what they give.

    `download` begins the way to the host; where the executor is asynchronous it is begun when
    the step is launched, and a later step takes its tokens on the device.
    """

    def __init__(
        self,
        executor: Executor,
        table: BlockTable,
        *,
        rows: int,
        flights: int,
        download: Callable[..., Download] = Download,
    ) -> None:
        self._executor, self._download = executor, download
        size = executor.block_tokens
        where = executor.logits_device
        self._free = [Staging(rows, table, size, where) for _ in range(flights)]
        # the newest token of each row, where the host is not waited for
        self._newest_S: Tensor | None = None
        if executor.asynchronous:
            # steps follow each other on the device, so one memory serves all
            self._free = [self._free[0]] * flights
            self._newest_S = torch.zeros(rows, dtype=torch.int64, device=executor.device)

    def launch(self, plan: Plan, began_s: float) -> Launch:
        launch = Launch(plan, self._free.pop(0), began_s)
        launch.staged = launch.staging.fill(plan, self._newest_S)
        try:
            launch.flight = self._executor.run(launch.staged.batch)
            if self._executor.asynchronous:
                launch.download = self._choose(launch.staged, launch.flight.land())
        except Exception as error:
            if is_fatal(error):
                raise
            launch.error = error
        return launch

    def land(self, launch: Launch) -> Choice:
        """Waits; or raises what went wrong with the step."""
        try:
            return self._land(launch)
        finally:
            self._free.append(launch.staging)

    def _land(self, launch: Launch) -> Choice:
        staged, flight = launch.staged, launch.flight
        if launch.error is not None:
            raise launch.error
        assert staged is not None
        assert flight is not None
        if launch.download is None:
            launch.download = self._choose(staged, flight.land())
        return _read(staged, launch.download)

    def _choose(self, staged: Staged, logits_WV: Tensor) -> Download:
        choosers = len(staged.choosers)
        logits_BV = logits_WV[:choosers]
        position_B = staged.batch.position_M[:choosers]
        if staged.batch.chunks:
            position_B = staged.batch.position_M[staged.batch.wanted_W[:choosers]]
        position_B = position_B.to(logits_WV.device, non_blocking=True)
        token_B = sample(logits_BV, staged.sampling, position_B + 1)
        if self._newest_S is not None:
            self._newest_S.index_copy_(0, staged.row_B, token_B)
        found = [token_B]
        if staged.logprobs:
            found.append(logprobs(logits_BV, token_B))
        if staged.target_N is not None:
            found.append(logprobs(logits_WV[choosers:], staged.target_N))
        return self._download(*found)


def _read(staged: Staged, download: Download) -> Choice:
    lists = download.read()
    return Choice(
        tokens=[int(token) for token in lists[0]],
        logprobs=lists[1] if staged.logprobs else None,
        scores=lists[-1] if staged.target_N is not None else [],
    )
