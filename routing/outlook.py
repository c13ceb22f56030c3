"""All pools while a look at all jobs goes on: columns for what is compared by the thousand, bays
for those that are touched.

Owns what each choice takes from the next, and how a pool was at any moment of the look, so that a
decision can be put in words later. Knows nothing of which pool is best."""

import math

import numpy as np

from routing.bay import Bay, Was
from routing.facts import Column, Marks
from routing.gate import STALE_MS, Room
from routing.roster import SPARE_FROM_SLOTS, Roster


class Outlook:
    """One look. The columns are up to date for every pool at any time."""

    def __init__(self, roster: Roster, now_ms: int) -> None:
        self.roster = roster
        self.now_ms = now_ms
        self.busy = roster.in_flight.copy()
        self.free: Column = roster.slots - roster.in_flight
        np.maximum(self.free, 0, out=self.free)
        # a lease that must run alone takes the whole pool
        np.putmask(self.free, roster.alone, 0)
        self.next_s = roster.next_s(now_ms)
        self.training_s = roster.training_s(now_ms)
        self.backlog_s = roster.backlog_s(now_ms)
        self.kv_open = roster.kv_total - roster.kv_leased
        taken = np.bincount(roster.device, roster.memory_leased, len(roster.pools))
        self.memory_open = roster.memory_limit - taken[roster.device]
        # as it was when the look began, which is what the gate goes by
        self._room = self.memory_open.copy()
        self.silent = now_ms - roster.heard_ms > STALE_MS
        # what is free there is reserved, at least in part
        self.fenced: Marks = np.zeros(len(roster.pools), bool)
        self._nothing: Column = np.zeros(len(roster.pools))
        self.slots = float(roster.slots[roster.takes].sum())
        # slots that may still be leased
        self.slots_left = float(self.free[roster.takes].sum())
        # each change so far: the pool, and what it was before
        self.log: list[tuple[int, Was]] = []
        self._bays: dict[int, Bay] = {}

    def kept(self, share: float, *, spare: bool) -> Column:
        """Slots of each pool that are kept from some; only of pools that have several. `spare`:
        one at least."""
        if not spare and share <= 0:
            return self._nothing
        slots = self.roster.slots
        return np.where(slots >= SPARE_FROM_SLOTS, np.maximum(slots * share // 1, spare), 0.0)

    def bay(self, i: int) -> Bay:
        bay = self._bays.get(i)
        if bay is None:
            roster, now_ms = self.roster, self.now_ms
            taken = roster.memory_leased.item(i)
            bay = Bay(self._state(i), taken, lambda: roster.ends_s(i, now_ms))
            self._bays[i] = bay
        return bay

    def _state(self, i: int) -> Was:
        kv_open = self.kv_open.item(i)
        return Was(
            int(self.roster.slots.item(i)),
            int(self.busy.item(i)),
            int(self.free.item(i)),
            self.next_s.item(i),
            kv_open,
            kv_open,
            self.memory_open.item(i),
            math.inf,
            self.training_s.item(i),
            self.backlog_s.item(i),
        )

    def was(self, i: int, moment: int) -> Was:
        """A pool as it was after so many changes."""
        for changed, before in self.log[moment:]:
            if changed == i:
                return before
        bay = self._bays.get(i)
        return bay.state() if bay else self._state(i)

    def room(self, i: int) -> Room:
        """What the gate must know of a pool."""
        memory = self._room.item(i)
        return Room(
            now_ms=self.now_ms,
            memory_bytes=None if memory == math.inf else int(memory),
            idle=self.roster.in_flight.item(i) == 0,
        )

    def short_of(self, load_bytes: Column) -> Marks:
        """The pools that cannot hold so many bytes of weights."""
        short: Marks = load_bytes > self._room
        return short

    def start(
        self, i: int, read_s: float, finish_s: float, kv: float, memory_bytes: float, *, alone: bool
    ) -> None:
        bay = self.bay(i)
        free = bay.free
        self.log.append((i, bay.state()))
        bay.start(finish_s, kv, memory_bytes, alone=alone)
        bay.read(read_s)
        self._write(i, bay)
        if self.roster.takes[i]:
            self.slots_left -= free - bay.free
        if memory_bytes:
            self._take_memory(i, memory_bytes)

    def _take_memory(self, i: int, memory_bytes: float) -> None:
        """Of all pools on the device."""
        roster = self.roster
        for j in roster.sharers.get(int(roster.device[i]), [i]):
            bay = self.bay(j)
            if j != i:
                self.log.append((j, bay.state()))
            bay.memory_open -= memory_bytes
            self.memory_open[j] = bay.memory_open

    def train(self, i: int, finish_s: float) -> None:
        """The job that has just started is a training."""
        self.bay(i).training_s = self.training_s[i] = finish_s

    def queue(self, i: int, read_s: float, finish_s: float | None) -> None:
        """A job waits there for a slot; without `finish_s` only until prompts have been read."""
        bay = self.bay(i)
        self.log.append((i, bay.state()))
        if finish_s is not None:
            bay.queue(finish_s)
        bay.read(read_s)
        self._write(i, bay)

    def reserve(self, i: int, start_s: float, kv: float | None) -> None:
        bay = self.bay(i)
        self.log.append((i, bay.state()))
        bay.reserve(start_s, kv)
        self.fenced[i] = True
        self.kv_open[i] = bay.kv_open

    def _write(self, i: int, bay: Bay) -> None:
        self.busy[i] = bay.busy
        self.free[i] = bay.free
        self.next_s[i] = bay.next_s
        self.kv_open[i] = bay.kv_open
        self.backlog_s[i] = bay.backlog_s
