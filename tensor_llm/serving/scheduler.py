"""Who moves in the next step, and whose blocks make room for others. Host side, no tensors.

Owns rows, the order among prompts, admission and eviction. Sequences have a fixed order, by rank
and then by arrival, and nobody gives way to one behind it: so the first always comes to its end.
Knows nothing of how a step is computed."""

import math
from dataclasses import dataclass, field

from tensor_llm.serving.blocks import BlockPool
from tensor_llm.serving.prefixes import Prefixes
from tensor_llm.serving.sequence import Sequence

AGED = 8
"""A prompt passed over in so many plans gets half of the next budget of its rank."""


@dataclass(slots=True, kw_only=True)
class Piece:
    """A part of a prompt, to be read in one step."""

    sequence: Sequence
    start: int
    count: int

    @property
    def end(self) -> int:
        return self.start + self.count

    @property
    def samples(self) -> bool:
        """Whether a token comes out."""
        request = self.sequence.request
        return not request.score and self.end == self.sequence.to_read


@dataclass(slots=True, kw_only=True)
class Plan:
    """One step: a token of each of `decodes`, then the pieces; a sequence is in it once."""

    decodes: list[Sequence] = field(default_factory=list)
    pieces: list[Piece] = field(default_factory=list)


def priority(sequence: Sequence) -> tuple[int, int]:
    """Smaller ones never give way to larger ones."""
    return sequence.rank, sequence.order


class Scheduler:
    """Plans step after step; the core tells it what became of them."""

    def __init__(
        self,
        pool: BlockPool,
        *,
        rows: int,
        flights: int = 1,
        asynchronous: bool = False,
        score_tokens: int = 256,
        salt: str = "",
    ) -> None:
        self.pool = pool
        self.prefixes = Prefixes(pool, salt)
        self.waiting: list[Sequence] = []
        # in the order of their rows, so that a batch stays the same from step to step
        self.running: list[Sequence] = []
        # what is new in the block table: row, place in the row, blocks
        self.news: list[tuple[int, int, list[int]]] = []
        self.evictions = 0
        # found in blocks instead of being read
        self.reused_tokens = 0
        self._free_rows = set(range(rows))
        # in the present plan: they do not come back in the same
        self._evicted: set[Sequence] = set()
        self._flights, self._asynchronous = flights, asynchronous
        # scored tokens of a step: each of them has logits
        self._score_tokens = self._score_left = score_tokens

    def add(self, sequence: Sequence) -> None:
        self.waiting.append(sequence)

    def plan(self, budget: int) -> Plan | None:
        """The next step, with up to `budget` tokens of prompts; None where nobody can move."""
        self._evicted.clear()
        decodes = self._grow(self._ready())
        pieces = self._read(budget) if len(self.waiting) or self._reading() else []
        # who was chosen first may have been evicted for a prompt
        decodes = [one for one in decodes if one.decoding and not one.leaving]
        return Plan(decodes=decodes, pieces=pieces) if decodes or pieces else None

    def landed(self, sequence: Sequence, upto: int) -> None:
        """The first `upto` tokens of the sequence are in its blocks."""
        if upto // self.pool.block_tokens > sequence.remembered:
            self.prefixes.remember(sequence, upto)

    def settle(self, sequence: Sequence) -> None:
        """A leaving sequence is part of no step any more."""
        assert not sequence.flying
        self._vacate(sequence)
        sequence.leaving = False
        if not (sequence.dropped or sequence.ended):
            self.waiting.append(sequence)

    def drop(self, sequence: Sequence) -> None:
        """At once, or when the steps under way have landed."""
        sequence.dropped = True
        if sequence in self.waiting:
            self.waiting.remove(sequence)
        elif sequence.row is not None:
            sequence.leaving = True
            if not sequence.flying:
                self.settle(sequence)

    def evict(self, victim: Sequence) -> None:
        """Takes blocks and row away; it will read its tokens again."""
        self.evictions += 1
        victim.evictions += 1
        self._evicted.add(victim)
        victim.leaving = True
        if not victim.flying:
            self.settle(victim)

    def _ready(self) -> list[Sequence]:
        """Those of which the next token can be read; with several flights each gets a share."""
        decoding = [one for one in self.running if one.decoding and not one.leaving]
        ready = [
            one
            for one in decoding
            if (self._asynchronous or not one.pending) and len(one.tokens) + one.pending < one.limit
        ]
        share = math.ceil(len(decoding) / self._flights)
        return ready if share >= len(ready) else ready[:share]

    def _reading(self) -> bool:
        return any(not one.decoding and _unread(one) for one in self.running)

    def _grow(self, ready: list[Sequence]) -> list[Sequence]:
        """Gives a block to each whose blocks are full, the first in order first; without those
        for which none was left."""
        size = self.pool.block_tokens
        needy = [one for one in ready if one.read == len(one.blocks) * size]
        starved: list[Sequence] = []
        for one in sorted(needy, key=priority):
            # not if it was evicted for one before it
            if one.decoding and not one.leaving and not self._grow_one(one, len(starved)):
                starved.append(one)
        return [one for one in ready if one not in starved] if starved else ready

    def _grow_one(self, one: Sequence, owed: int) -> bool:
        while (blocks := self.pool.take(1)) is None:
            # those that leave soon have blocks enough for this one, too
            if self._coming() > owed:
                return False
            victim = max((each for each in self.running if not each.leaving), key=priority)
            self.evict(victim)
            if victim is one:
                return False
        assert one.row is not None
        self.news.append((one.row, len(one.blocks), blocks))
        one.blocks += blocks
        return True

    def _coming(self) -> int:
        """Blocks that become free when the steps under way land."""
        return sum(self._alone(one) for one in self.running if one.leaving)

    def _alone(self, one: Sequence) -> int:
        return sum(map(self.pool.owned_once, one.blocks))

    def _read(self, budget: int) -> list[Piece]:
        """Shares the budget among prompts: by rank, then the one with the least left."""
        prompts = [one for one in self.running if _unread(one)] + self.waiting
        prompts.sort(key=lambda one: (one.rank, self._remaining(one), one.order))
        self._score_left = self._score_tokens
        pieces: dict[Sequence, Piece] = {}
        left, admits, quick = budget, True, False
        for one, most in self._turns(prompts, budget):
            if left < 1:
                break
            fresh = one.row is None
            # who came and is read at once waits for no part of a longer prompt
            if one in self._evicted or (quick and self._remaining(one) > left):
                continue
            if fresh:
                reader = self.prefixes.reader_of(one)
                if reader is None and not (admits and self._admit(one)):
                    # it must not wait for ever behind smaller ones that fit
                    admits = admits and one.passed < AGED
                    continue
                # what somebody reads already is read once, for the more urgent of the two
                one, fresh = reader or one, reader is None
            left -= self._cut(one, min(most, left), pieces)
            quick = quick or (fresh and one in pieces and pieces[one].samples)
        for one in prompts:
            one.passed = 0 if one in pieces else one.passed + 1
        return [piece for one, piece in pieces.items() if one not in self._evicted]

    def _turns(self, prompts: list[Sequence], budget: int) -> list[tuple[Sequence, int]]:
        """In which order prompts are offered how much."""
        turns = [(one, budget) for one in prompts]
        aged = [one for one in prompts if one.passed >= AGED and one.rank == prompts[0].rank]
        if aged:
            turns.insert(0, (min(aged, key=priority), max(1, budget // 2)))
        return turns

    def _cut(self, one: Sequence, most: int, pieces: dict[Sequence, Piece]) -> int:
        """Adds up to so many of the sequence's tokens to its piece; how many."""
        if one.leaving:
            return 0
        piece = pieces.get(one) or Piece(sequence=one, start=one.read, count=0)
        count = min(most, one.to_read - piece.end)
        if one.request.score:
            count = min(count, self._score_left)
            self._score_left -= count
        if count < 1:
            return 0
        piece.count += count
        pieces[one] = piece
        return count

    def _remaining(self, one: Sequence) -> int:
        if one.row is not None:
            return one.to_read - one.read
        return one.to_read - len(self.prefixes.find(one)) * self.pool.block_tokens

    def _admit(self, one: Sequence) -> bool:
        """Gives it a row and blocks for all that it has to read, if need be those of lower
        ranks; not if those that run would soon have no block to grow into."""
        while (short := self._short(one)) > 0:
            lower = [each for each in self.running if each.rank > one.rank]
            if sum(map(self._alone, lower)) < short:
                return False
            if not self._oust(lower, short):
                return False
        if not self._free_rows and not self._oust(
            [each for each in self.running if each.rank > one.rank], 0
        ):
            return False
        self._seat(one)
        return True

    def _oust(self, lower: list[Sequence], short: int) -> bool:
        """Evicts the last of the lower ranks; False where what it frees comes later."""
        leaving = [each for each in lower if each.leaving]
        if leaving and sum(map(self._alone, leaving)) >= short:
            return False
        staying = [each for each in lower if not each.leaving]
        if not staying:
            return False
        victim = max(staying, key=priority)
        self.evict(victim)
        return victim.row is None

    def _short(self, one: Sequence) -> int:
        found = self.prefixes.find(one)
        fresh = math.ceil(one.to_read / self.pool.block_tokens) - len(found)
        revived = sum(not self.pool.owned(block) for block in found)
        growing = sum(each.rank <= one.rank and not each.leaving for each in self.running)
        return fresh + revived + growing - self.pool.free

    def _seat(self, one: Sequence) -> None:
        found = self.prefixes.share(one)
        blocks = self.pool.take(math.ceil(one.to_read / self.pool.block_tokens) - len(found))
        assert blocks is not None
        one.blocks = [*found, *blocks]
        one.read = len(found) * self.pool.block_tokens
        one.remembered = len(found)
        self.reused_tokens += one.read
        if not one.evictions:
            one.reused_tokens = one.read
        one.row = min(self._free_rows)
        self._free_rows.remove(one.row)
        self.waiting.remove(one)
        self.running.append(one)
        self.running.sort(key=lambda each: each.row or 0)
        self.news.append((one.row, 0, one.blocks[:]))

    def _vacate(self, one: Sequence) -> None:
        assert one.row is not None
        self.prefixes.forget_reader(one)
        self.pool.give_back(one.blocks)
        self._free_rows.add(one.row)
        self.running.remove(one)
        one.blocks, one.row = [], None
        one.read = one.pending = one.remembered = 0
        one.decoding = False


def _unread(one: Sequence) -> bool:
    return not (one.decoding or one.leaving) and one.read < one.to_read
