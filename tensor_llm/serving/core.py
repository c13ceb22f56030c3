"""Many requests, one model: a step at a time, each for everybody who can move.

Owns the order of a step (plan, launch, land), what came out for whom, and the search for the
culprit when a step fails. Knows nothing of text: who finds a stop string drops the sequence.

What is guaranteed: a token depends on the logits after the tokens before it and on (seed,
position) alone. Which others run beside it, how its prompt is cut into chunks, what is found in
others' blocks, whether it is evicted and resumed: none of that enters, but for the rounding of
the logits, as sums over other shapes are added up in another order. So in float32 greedy answers
are equal token for token but where two logits lie within about 1e-5 of each other, and sampled
ones but where a draw falls that close to a border between tokens. In bfloat16 those distances
are some 1e-2, and equal answers are likely, not guaranteed, when batches differ; the same
requests in the same order on the same machine and threads give the same answers."""

import time
from collections import deque
from collections.abc import Callable, Iterator

import torch

from tensor_llm.serving.blocks import BlockPool
from tensor_llm.serving.delivery import Delivery
from tensor_llm.serving.executor import Executor
from tensor_llm.serving.fault import is_fatal
from tensor_llm.serving.launch import Launch, Launcher
from tensor_llm.serving.output import Output, Stats
from tensor_llm.serving.part import Part, parts_of
from tensor_llm.serving.request import Request
from tensor_llm.serving.scheduler import Plan, Scheduler
from tensor_llm.serving.sequence import Sequence
from tensor_llm.serving.table import BlockTable
from tensor_llm.upload import Download

__all__ = ["Core", "Output", "Stats"]

SCORE_LOGITS = {"cpu": 1 << 23}
SCORE_LOGITS_ELSEWHERE = 1 << 27
"""Numbers in the logits of the scored tokens of one step."""


class Core:
    """Not thread-safe. `rows` sequences run at once, others wait. A step reads up to
    `chunk_tokens` tokens of prompts. `salt` is whatever makes equal tokens mean other keys and
    values: the model's revision."""

    def __init__(
        self,
        executor: Executor,
        *,
        rows: int,
        chunk_tokens: int | Callable[[], int] = 256,
        salt: str = "",
        clock: Callable[[], float] = time.monotonic,
        download: Callable[..., Download] = Download,
    ) -> None:
        """
        Raises:
            ValueError: rows or blocks are below 1.
        """
        if rows < 1:
            raise ValueError(f"rows = {rows}: allowed is 1 or more")
        self.executor, self._clock, self._chunk_tokens = executor, clock, chunk_tokens
        config, size = executor.config, executor.block_tokens
        self._context = config.context
        self._pool = BlockPool(executor.blocks, size)
        # on an asynchronous device the next step is launched before the present one is read
        self._flights = 2 if executor.asynchronous else executor.flights
        limit = SCORE_LOGITS.get(executor.logits_device.type, SCORE_LOGITS_ELSEWHERE)
        self._scheduler = Scheduler(
            self._pool,
            rows=rows,
            flights=executor.flights,
            asynchronous=executor.asynchronous,
            score_tokens=max(16, limit // config.vocabulary),
            salt=salt,
        )
        width = min(executor.blocks, -(-config.context // size))
        self._table = BlockTable(rows, width, executor.device)
        self._launcher = Launcher(
            executor, self._table, rows=rows, flights=self._flights, download=download
        )
        self._flying: deque[Launch] = deque()
        self._delivery = Delivery(self._scheduler, clock())
        self._added = 0

    def add(self, request: Request) -> Sequence:
        """
        Raises:
            ValueError: tokens and max_tokens exceed the context, or all blocks there are.
        """
        wanted = len(request.tokens) + request.max_tokens
        words = f"{len(request.tokens)} tokens and max_tokens = {request.max_tokens}: together "
        if wanted > self._context:
            raise ValueError(f"{words}{wanted}, allowed are {self._context}, the context")
        # the last token is never read
        if wanted - 1 > self.kv_tokens_total:
            raise ValueError(
                f"{words}{wanted}, allowed are {self.kv_tokens_total + 1}: the cache has "
                f"{self._pool.total} blocks of {self._pool.block_tokens} tokens"
            )
        sequence = Sequence(request, self._added, self._clock())
        self._added += 1
        self._scheduler.add(sequence)
        return sequence

    def drop(self, sequence: Sequence) -> None:
        """Takes a sequence out, whatever its state; no output comes for it any more."""
        self._scheduler.drop(sequence)

    @torch.inference_mode()
    def step(self) -> list[Output]:
        """Launches what can be launched and lands the oldest step under way; an output for
        each sequence that it moved. Empty where nothing is to be done."""
        while len(self._flying) < self._flights:
            plan = self._scheduler.plan(self._budget())
            if plan is None:
                break
            self._flying.append(self._launch(plan))
        return self._land(self._flying.popleft()) if self._flying else []

    @property
    def busy(self) -> bool:
        """Whether some sequence is not at its end, or a step is under way."""
        return bool(self._flying or self._scheduler.running or self._scheduler.waiting)

    @property
    def kv_tokens_total(self) -> int:
        return self._pool.total * self._pool.block_tokens

    @property
    def kv_tokens_free(self) -> int:
        return self._pool.free * self._pool.block_tokens

    @property
    def waiting(self) -> list[Sequence]:
        """Those that have no row yet, or lost it."""
        return list(self._scheduler.waiting)

    @property
    def running(self) -> list[Sequence]:
        return list(self._scheduler.running)

    def stats(self) -> Stats:
        return self._delivery.stats()

    def check(self) -> None:
        """Raises AssertionError where blocks have leaked."""
        self._pool.check()
        owned = {block for one in self._scheduler.running for block in one.blocks}
        assert len(owned) == self._pool.used

    def close(self) -> None:
        """Nothing more comes: takes everything out and closes the executor."""
        for sequence in [*self._scheduler.waiting, *self._scheduler.running]:
            self.drop(sequence)
        while self._flying:
            self.step()
        self.executor.close()

    def _budget(self) -> int:
        wanted = self._chunk_tokens() if callable(self._chunk_tokens) else self._chunk_tokens
        # with less nothing would ever be read
        return max(1, wanted)

    def _launch(self, plan: Plan) -> Launch:
        now_s = self._clock()
        self._table.write(self._scheduler.news)
        self._scheduler.news.clear()
        launch = self._launcher.launch(plan, now_s)
        for one in plan.decodes:
            one.read += 1
            one.pending += 1
            one.flying += 1
        for piece in plan.pieces:
            one = piece.sequence
            if one.first_scheduled_s is None:
                one.first_scheduled_s = now_s
            one.read = piece.end
            one.flying += 1
            if piece.samples:
                one.pending += 1
                one.decoding = True
        return launch

    def _land(self, launch: Launch) -> list[Output]:
        try:
            choice = self._launcher.land(launch)
        except Exception as error:
            if is_fatal(error):
                raise
            return list(self._recover(launch))
        return list(self._delivery.take(launch, choice, self._clock()))

    def _recover(self, failed: Launch) -> Iterator[Output]:
        """A step failed for all its sequences: brings home what flies behind it, takes all of
        them back to where they were, and finds out one by one whose fault it was."""
        before = parts_of(failed.plan)
        outputs: list[Output] = []
        for launch in list(self._flying):
            self._flying.popleft()
            try:
                choice = self._launcher.land(launch)
            except Exception as error:
                if is_fatal(error):
                    raise
                before = parts_of(launch.plan) | before
            else:
                outputs += self._delivery.take(launch, choice, self._clock(), before)
        yield from outputs
        for one, part in before.items():
            one.flying = one.pending = 0
            if one.leaving:
                self._scheduler.settle(one)
                continue
            one.read, one.decoding = part.start, part.decoding
            output = self._alone(one, part)
            if output is not None:
                yield output

    def _alone(self, one: Sequence, part: Part) -> Output | None:
        try:
            launch = self._launch(part.plan)
            choice = self._launcher.land(launch)
        except Exception as error:
            if is_fatal(error):
                raise
            one.flying = one.pending = 0
            one.ended = one.leaving = True
            self._scheduler.settle(one)
            return Output(sequence=one, error=error)
        return next(self._delivery.take(launch, choice, self._clock()), None)
