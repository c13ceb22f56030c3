"""What jobs alike see of all pools during a look: which could run them, when they could start
there at the earliest, and how long a decode step would take.

Owns these columns and keeps them up to date with what each choice takes. They are lower bounds: a
pool that looks free may be short of KV cache or memory. Knows nothing of which pool is best."""

import math
from functools import cached_property

import numpy as np

from routing.facts import Column, Marks, SceneFacts
from routing.lane import Lane
from routing.outlook import Outlook

TIE = 1e-9
"""Of two pools that end a job at the same time, the one that starts it sooner is better."""


class View:
    """Jobs of one scene.

    Args:
        kept: slots of each pool that are kept from their class.
        wait: how many times longer than the next slot takes such jobs wait for it.
        ahead_s: prompts that wait to be read in a pool, in seconds, above which it takes no more.
    """

    def __init__(
        self,
        look: Outlook,
        scene: SceneFacts,
        lane: Lane,
        kept: Column,
        *,
        ahead_s: float,
        wait: float,
    ) -> None:
        self.look = look
        self.lane = lane
        self.kept = kept
        self.scene = scene
        self.model = scene.model
        self.context = scene.model.context or math.inf
        # too little memory for the weights
        self.short: Marks = look.short_of(lane.facts.load_bytes)
        self.able: Marks = ~(scene.refused | look.silent | self.short)
        self.count = int(np.count_nonzero(self.able))
        facts, roster = lane.facts, look.roster
        self.ahead_s = ahead_s
        self.wait = wait
        slot: Marks = look.free > kept
        batch = np.where(slot, look.busy + 1, look.roster.slots)
        step_s: Column = facts.step_s + facts.sequence_s * batch
        # a decode step, and reading a prompt token, beside which the others decode
        self.step_s: Column = step_s * roster.decode_drag
        full_s = np.maximum(facts.step_s, facts.part_s) + facts.sequence_s * look.busy
        read_s = np.where(look.busy > 0, full_s / facts.part_tokens, facts.prefill_s)
        self.read_s: Column = read_s * roster.read_drag
        start_s = np.maximum(
            np.where(slot, 0.0, look.next_s), look.backlog_s - lane.ready_s - ahead_s
        )
        with np.errstate(over="ignore"):
            np.multiply(start_s, wait, out=start_s, where=start_s > 0)
        self.base: Column = np.maximum(start_s, lane.ready_s) + lane.load_s
        np.maximum(self.base, look.backlog_s, out=self.base)
        self.base += TIE * start_s
        np.putmask(self.base, ~self.able, math.inf)
        self.open: Marks = self.able & (start_s <= 0)
        # pools with a free slot for it
        self.open_count = int(np.count_nonzero(self.open))
        self._moment = len(look.log)

    @property
    def lasting(self) -> Marks:
        """A refusal that stands as long as job and pool are what they are."""
        roster = self.look.roster
        idle = (roster.in_flight == 0) & ~roster.starting
        lasting: Marks = self.scene.lasting | (self.short & idle)
        return lasting

    @cached_property
    def train_tokens_per_s(self) -> float:
        """Of the fastest pool."""
        rates = self.lane.facts.train_tokens_per_s[self.able]
        return float(rates.max()) if self.count else 1.0

    def late_s(self, i: int, backlog_s: float) -> float:
        """Seconds until a pool may take another prompt; a model that is being loaded is no
        reason to wait."""
        late_s = backlog_s - self.lane.ready_s.item(i) - self.ahead_s
        return late_s * self.wait if late_s > 0 else late_s

    def catch_up(self) -> None:
        """Takes in what changed since the last job of this kind."""
        log = self.look.log
        if len(log) == self._moment:
            return
        for i in {i for i, _ in log[self._moment :]}:
            if self.able[i]:
                self._renew(i)
        self._moment = len(log)

    def _renew(self, i: int) -> None:
        bay, lane = self.look.bay(i), self.lane
        slot = bay.free > self.kept.item(i)
        start_s = max(0.0 if slot else bay.next_s * self.wait, self.late_s(i, bay.backlog_s))
        batch = bay.busy + 1 if slot else bay.slots
        is_open = start_s <= 0
        if is_open != self.open.item(i):
            self.open[i] = is_open
            self.open_count += 1 if is_open else -1
        step_s = lane.facts.step_s.item(i) + lane.facts.sequence_s.item(i) * batch
        self.step_s[i] = step_s * self.look.roster.decode_drag.item(i)
        self.base[i] = max(lane.begins_s(i, start_s), bay.backlog_s) + TIE * start_s
