"""What jobs alike see of all pools during a look: which could run them, when they could start
there at the earliest, and how long a decode step would take.

Owns these columns and keeps them up to date with what each choice takes. They are lower bounds: a
pool that looks free may be short of KV cache or memory. Knows nothing of which pool is best."""

import math

import numpy as np

from routing.facts import Column, Marks, SceneFacts
from routing.lane import Lane
from routing.outlook import Outlook

TIE = 1e-9
"""Of two pools that end a job at the same time, the one that starts it sooner is better."""


class View:
    """Jobs of one scene; `kept`: slots of each pool that are kept from their class."""

    def __init__(self, look: Outlook, scene: SceneFacts, lane: Lane, kept: Column) -> None:
        self.look = look
        self.lane = lane
        self.kept = kept
        self.model = scene.model
        self.context = scene.model.context or math.inf
        short = look.short_of(lane.facts.load_bytes)
        self.able: Marks = ~(scene.refused | look.silent | short)
        idle = (look.roster.in_flight == 0) & ~look.roster.starting
        # a refusal that stands as long as job and pool are what they are
        self.lasting: Marks = scene.lasting | (short & idle)
        self.count = int(self.able.sum())
        limits = lane.facts.kv_limit[self.able]
        self.kv_least = float(limits.min()) if self.count else 0.0
        rates = lane.facts.train_tokens_per_s[self.able]
        self.train_tokens_per_s = float(rates.max()) if self.count else 1.0
        self.prefill_s = lane.facts.prefill_s
        self.open: Marks = look.free > kept
        start_s = np.where(self.open, 0.0, look.next_s)
        batch = np.where(self.open, look.busy + 1, look.roster.slots)
        self.step_s: Column = lane.facts.step_s + lane.facts.sequence_s * batch
        self.base: Column = np.maximum(start_s, lane.ready_s) + lane.load_s + TIE * start_s
        self.base[~self.able] = math.inf
        self.open &= self.able
        # pools with a free slot for it
        self.open_count = int(self.open.sum())
        self._moment = len(look.log)

    def catch_up(self) -> None:
        """Takes in what changed since the last job of this kind."""
        log = self.look.log
        for i, _ in log[self._moment :]:
            if self.able[i]:
                self._renew(i)
        self._moment = len(log)

    def _renew(self, i: int) -> None:
        bay, lane = self.look.bay(i), self.lane
        is_open = bay.free > self.kept.item(i)
        start_s = 0.0 if is_open else bay.next_s
        batch = bay.busy + 1 if is_open else bay.slots
        if is_open != self.open.item(i):
            self.open[i] = is_open
            self.open_count += 1 if is_open else -1
        self.step_s[i] = lane.facts.step_s.item(i) + lane.facts.sequence_s.item(i) * batch
        self.base[i] = lane.begins_s(i, start_s) + TIE * start_s
