"""Training behind the answers of one simulated pool. Owns how much of the time it gets and what it
did in it; knows nothing of steps, or of who sent it there.

As in the engines: while a prompt of a higher class is unread, it gets a sixteenth of the time, so
that it never stands still; while others only decode, half; else all. A part of an optimiser step
that is under way when a prompt comes is finished first."""

from routing.simulation.described import DescribedPool

BESIDE = 1 / 2
"""Of the time, while others decode."""
LEAST = 1 / 16
"""Of the time, while a prompt of a higher class is unread."""


class Training:
    """At most one at a time; `rank` is absent while there is none."""

    def __init__(self, described: DescribedPool) -> None:
        self._tokens_per_s = described.train_tokens_per_s or 0.0
        self._part_s = described.train_part_s
        self.rank: int | None = None
        # of the time, beside others; 0: there is no training, or nothing else
        self.share = 0.0
        # until then a part that was under way has all of the time
        self.held_until_s = 0.0
        self.tokens = 0.0
        # slices that were not whole
        self.pauses = 0
        self._alone = True
        # seconds of training in this slice
        self._had_s = 0.0

    def begin(self, rank: int) -> None:
        assert self._tokens_per_s
        self.rank = rank
        self._had_s = 0.0
        self._alone = True

    def end(self, *, paused: bool) -> None:
        self.pauses += paused
        self.rank = None
        self.share = 0.0

    def advance(self, from_s: float, begun_s: float, now_s: float) -> None:
        """Until `begun_s` no steps are made."""
        if self.rank is None:
            return
        had_s = now_s - from_s if self._alone else begun_s - from_s
        if not self._alone:
            had_s += (now_s - begun_s) * self.share
        self._had_s += had_s
        self.tokens += had_s * self._tokens_per_s

    def share_with(self, now_s: float, *, others: bool, unread_rank: int | None) -> None:
        """Others run beside it, the most urgent unread prompt of theirs has that rank."""
        assert self.rank is not None
        urgent = unread_rank is not None and unread_rank < self.rank
        share = (LEAST if urgent else BESIDE) if others else 0.0
        if share == LEAST and self.share != LEAST:
            self.held_until_s = max(self.held_until_s, now_s + self._left_s())
        self.share = share
        self._alone = not others

    def beside(self, unread: bool) -> float:
        """How many times longer a step of others takes."""
        if self.rank is None:
            return 1.0
        return 1 / (1 - (LEAST if unread else BESIDE))

    def _left_s(self) -> float:
        """Of the part under way. Where time is shared equally, a part comes behind as long a time
        of steps: half of it, and it is done twice as fast."""
        gone = self._had_s / self._part_s % 1.0
        if self._alone:
            return (1 - gone) * self._part_s
        return max(1 - 2 * gone, 0.0) * self._part_s
