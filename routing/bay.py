"""One pool while a look at all jobs goes on: what is free in it, now and as predicted.

Owns the mutable side of a decision: each job placed or waiting takes its slot out of what the
next one sees. Knows nothing of which pool is best."""

import heapq
from collections.abc import Callable
from typing import NamedTuple


class Was(NamedTuple):
    """A bay as it was at an earlier moment of the look."""

    slots: int
    busy: int
    free: int
    next_s: float
    kv_free: float
    kv_open: float
    memory_open: float
    fence_s: float
    training_s: float
    # until the prompts that were sent there have been read
    backlog_s: float


class Bay:
    """Seconds count from the moment of the decision."""

    __slots__ = (
        "_ends",
        "_ends_s",
        "backlog_s",
        "busy",
        "fence_s",
        "free",
        "kv_free",
        "kv_open",
        "memory_open",
        "memory_taken",
        "next_s",
        "slots",
        "training_s",
    )

    def __init__(self, was: Was, memory_taken: float, ends_s: Callable[[], list[float]]) -> None:
        self.slots = was.slots
        self.busy = was.busy
        self.free = was.free
        self.next_s = was.next_s
        # tokens that are not leased, and of those what no waiting job has reserved
        self.kv_free = was.kv_free
        self.kv_open = was.kv_open
        self.memory_open = was.memory_open
        # before this time nothing may start that would not have ended by then
        self.fence_s = was.fence_s
        self.training_s = was.training_s
        self.backlog_s = was.backlog_s
        # bytes of this pool's own leases
        self.memory_taken = memory_taken
        self._ends_s = ends_s
        self._ends: list[float] | None = None

    def state(self) -> Was:
        return Was(
            self.slots,
            self.busy,
            self.free,
            self.next_s,
            self.kv_free,
            self.kv_open,
            self.memory_open,
            self.fence_s,
            self.training_s,
            self.backlog_s,
        )

    def start(self, finish_s: float, kv: float, memory_bytes: float, *, alone: bool) -> None:
        """A job starts now and takes a free slot; alone, it takes all."""
        ends = self._heap()
        self.free = 0 if alone else self.free - 1
        self.busy += 1
        heapq.heappush(ends, finish_s)
        self.next_s = ends[0]
        self.kv_free -= kv
        self.kv_open -= kv
        self.memory_taken += memory_bytes

    def queue(self, finish_s: float) -> None:
        """A job waits for the next slot: those after it see the slot after that."""
        ends = self._heap()
        if ends:
            heapq.heapreplace(ends, finish_s)
            self.next_s = ends[0]

    def read(self, read_s: float) -> None:
        """A prompt is to be read there by then, and others after it."""
        self.backlog_s = max(self.backlog_s, read_s)

    def reserve(self, start_s: float, kv: float | None) -> None:
        """A job waits for more than a slot: `kv` tokens, or the whole pool (None). What is free
        now may only be used by work that leaves it that, or ends before it starts."""
        self.fence_s = min(self.fence_s, start_s)
        self.kv_open = -1.0 if kv is None else self.kv_open - kv

    def all_free_s(self) -> float:
        """When the last run should end."""
        return max(self._heap(), default=0.0)

    def _heap(self) -> list[float]:
        if self._ends is None:
            self._ends = self._ends_s()
            heapq.heapify(self._ends)
        return self._ends
