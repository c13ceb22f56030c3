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
from dataclasses import dataclass
from typing import Literal

import torch

from tensor_llm.serving.blocks import BlockPool
from tensor_llm.serving.executor import Executor
from tensor_llm.serving.fault import is_fatal
from tensor_llm.serving.launch import Choice, Launch, Launcher
from tensor_llm.serving.request import Request
from tensor_llm.serving.scheduler import Piece, Plan, Scheduler
from tensor_llm.serving.sequence import Sequence
from tensor_llm.serving.table import BlockTable
from tensor_llm.upload import Download

Finish = Literal["eos", "length"]

SCORE_LOGITS = {"cpu": 1 << 23}
SCORE_LOGITS_ELSEWHERE = 1 << 27
"""Numbers in the logits of the scored tokens of one step."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What one step did for one sequence."""

    sequence: Sequence
    # new ones, the end token left out
    tokens: tuple[int, ...] = ()
    # of the new tokens where the request wants them; of a scored text's tokens, part by part
    logprobs: tuple[float, ...] = ()
    # a scored text ends with "length"
    finished: Finish | None = None
    # why it cannot go on; it is out of the core
    error: Exception | None = None
    # tokens whose keys and values are in blocks
    read: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """What has happened so far, and the last step that landed."""

    steps: int
    evictions: int
    # tokens read, and tokens that were found in blocks instead
    read_tokens: int
    reused_tokens: int
    # of the last step
    decode_rows: int
    chunk_tokens: int
    step_s: float


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
        self._added = self._steps = self._read_tokens = self._reused_tokens = 0
        self._decode_rows = self._chunk_read = 0
        self._step_s = 0.0
        self._landed_s = clock()

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
        return Stats(
            steps=self._steps,
            evictions=self._scheduler.evictions,
            read_tokens=self._read_tokens,
            reused_tokens=self._reused_tokens,
            decode_rows=self._decode_rows,
            chunk_tokens=self._chunk_read,
            step_s=self._step_s,
        )

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
        return self._chunk_tokens() if callable(self._chunk_tokens) else self._chunk_tokens

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
                self._reused_tokens += one.reused_tokens
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
        return list(self._take(launch, choice))

    def _take(
        self, launch: Launch, choice: Choice, skipped: frozenset[Sequence] = frozenset()
    ) -> Iterator[Output]:
        """Tells sequences what a step gave them."""
        plan, now_s = launch.plan, self._clock()
        self._count(launch, now_s)
        logprobs = choice.logprobs or [0.0] * len(choice.tokens)
        chosen = zip(choice.tokens, logprobs, strict=True)
        scores = iter(choice.scores)
        for one in plan.decodes:
            token, logprob = next(chosen)
            one.flying -= 1
            if one not in skipped:
                # the token that was read is the newest one known
                output = self._push(one, token, logprob, len(one.tokens), now_s)
                if output is not None:
                    yield output
        for piece in plan.pieces:
            one = piece.sequence
            one.flying -= 1
            found = next(chosen) if piece.samples else None
            scored = piece.count if one.request.score else 0
            parts = tuple(next(scores) for _ in range(scored))
            if one in skipped:
                continue
            output = (
                self._push(one, *found, piece.end, now_s)
                if found
                else self._pass(one, piece, parts)
            )
            if output is not None:
                yield output

    def _push(
        self, one: Sequence, token: int, logprob: float, read: int, now_s: float
    ) -> Output | None:
        """The next token of a sequence; None where nobody waits for it any more."""
        one.pending -= 1
        if one.dropped or one.ended:
            self._settle(one)
            return None
        request = one.request
        finished: Finish | None = None
        tokens: tuple[int, ...] = ()
        if token in request.eos_tokens:
            finished = "eos"
        else:
            one.tokens.append(token)
            tokens = (token,)
            if len(one.tokens) >= one.limit:
                finished = "length"
        if one.first_token_s is None:
            one.first_token_s = now_s
        one.last_token_s = now_s
        self._scheduler.landed(one, read)
        if finished is not None:
            one.ended = one.leaving = True
        self._settle(one)
        return Output(
            sequence=one,
            tokens=tokens,
            logprobs=(logprob,) if request.logprobs and tokens else (),
            finished=finished,
            read=read,
        )

    def _pass(self, one: Sequence, piece: Piece, scores: tuple[float, ...]) -> Output | None:
        """A part of a text was read and no token came out."""
        if one.dropped:
            self._settle(one)
            return None
        self._scheduler.landed(one, piece.end)
        over = one.request.score and piece.end == one.to_read
        if over:
            one.ended = one.leaving = True
        self._settle(one)
        return Output(
            sequence=one,
            logprobs=scores,
            finished="length" if over else None,
            read=piece.end,
        )

    def _settle(self, one: Sequence) -> None:
        if one.leaving and not one.flying:
            self._scheduler.settle(one)

    def _count(self, launch: Launch, now_s: float) -> None:
        plan = launch.plan
        self._steps += 1
        self._decode_rows = len(plan.decodes)
        self._chunk_read = sum(piece.count for piece in plan.pieces)
        self._read_tokens += self._decode_rows + self._chunk_read
        # steps that overlap share their time
        self._step_s = now_s - max(launch.began_s, self._landed_s)
        self._landed_s = now_s

    def _recover(self, failed: Launch) -> Iterator[Output]:
        """A step failed for all its sequences: brings home what flies behind it, takes all of
        them back to where they were, and finds out one by one whose fault it was."""
        before = _starts(failed.plan)
        outputs: list[Output] = []
        for launch in list(self._flying):
            self._flying.popleft()
            try:
                choice = self._launcher.land(launch)
            except Exception as error:
                if is_fatal(error):
                    raise
                before = _starts(launch.plan) | before
            else:
                outputs += self._take(launch, choice, frozenset(before))
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

    def _alone(self, one: Sequence, part: "_Part") -> Output | None:
        try:
            launch = self._launch(part.plan)
            choice = self._launcher.land(launch)
        except Exception as error:
            if is_fatal(error):
                raise
            one.flying = one.pending = 0
            one.ended = one.leaving = True
            self._settle(one)
            return Output(sequence=one, error=error)
        return next(self._take(launch, choice), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """What one sequence did in a step, and how it stood before."""

    start: int
    decoding: bool
    plan: Plan


def _starts(plan: Plan) -> dict[Sequence, _Part]:
    parts = {}
    for one in plan.decodes:
        start = len(one.tokens) - 1
        parts[one] = _Part(start=start, decoding=True, plan=Plan(decodes=[one]))
    for piece in plan.pieces:
        alone = Plan(pieces=[piece])
        parts[piece.sequence] = _Part(start=piece.start, decoding=False, plan=alone)
    return parts
