"""What a step gave, told to its sequences.

Owns what a token means for a sequence (its end, its times, its blocks), and the counts of all
steps. Knows nothing of how steps are planned or computed."""

from collections.abc import Container, Iterator

from tensor_llm.serving.launch import Choice, Launch
from tensor_llm.serving.output import Finish, Output, Stats
from tensor_llm.serving.scheduler import Piece, Scheduler
from tensor_llm.serving.sequence import Sequence


class Delivery:
    """`take` what each step gave, in the order of their landing."""

    def __init__(self, scheduler: Scheduler, now_s: float) -> None:
        self._scheduler = scheduler
        self._steps = self._read_tokens = 0
        self._decode_rows = self._chunk_tokens = 0
        self._step_s, self._landed_s = 0.0, now_s

    def stats(self) -> Stats:
        return Stats(
            steps=self._steps,
            evictions=self._scheduler.evictions,
            read_tokens=self._read_tokens,
            reused_tokens=self._scheduler.reused_tokens,
            decode_rows=self._decode_rows,
            chunk_tokens=self._chunk_tokens,
            step_s=self._step_s,
        )

    def take(
        self,
        launch: Launch,
        choice: Choice,
        now_s: float,
        skipped: Container[Sequence] = frozenset(),
    ) -> Iterator[Output]:
        """An output for each sequence of the step that goes on or ends by it; for those to be
        skipped it did not happen."""
        plan = launch.plan
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
        # one that was evicted reads again what it was told
        told = max(0, one.scored - piece.start)
        one.scored = max(one.scored, piece.start + len(scores))
        over = one.request.score and piece.end == one.to_read
        if over:
            one.ended = one.leaving = True
        self._settle(one)
        return Output(
            sequence=one,
            logprobs=scores[told:],
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
        self._chunk_tokens = sum(piece.count for piece in plan.pieces)
        self._read_tokens += self._decode_rows + self._chunk_tokens
        # steps that overlap share their time
        self._step_s = now_s - max(launch.began_s, self._landed_s)
        self._landed_s = now_s
