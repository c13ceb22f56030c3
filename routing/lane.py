"""One model in all pools during a look: how fast it is there, and when it is in memory. Owns what
loading costs whom; knows nothing of slots."""

import numpy as np

from noidle.snapshot import ModelInfo
from routing.facts import LaneFacts
from routing.outlook import Outlook


class Lane:
    """The first job on a model that is not loaded pays for all that come after it."""

    def __init__(self, facts: LaneFacts, look: Outlook, model: ModelInfo) -> None:
        self.facts = facts
        self.model = model
        self.load_s = facts.load_s.copy()
        self.load_bytes = facts.load_bytes.copy()
        # when a load that is under way should be done
        self.ready_s = np.zeros(len(facts.load_s))
        for i, ready_ms in look.roster.loading.items():
            if model.name in ready_ms and look.roster.in_flight[i] > 0:
                self.will_load(i, (ready_ms[model.name] - look.now_ms) / 1000)

    def will_load(self, i: int, ready_s: float) -> None:
        if self.load_s[i]:
            self.load_s[i], self.load_bytes[i] = 0.0, 0.0
            self.ready_s[i] = max(ready_s, 0.0)

    def begins_s(self, i: int, start_s: float) -> float:
        """When a job that gets its slot at `start_s` finds its model in memory."""
        return max(start_s, self.ready_s.item(i)) + self.load_s.item(i)

    def model_s(self, i: int) -> float:
        """Seconds that loading takes, whoever pays for them."""
        return self.facts.load_s.item(i)

    def memory_bytes(self, i: int, kv_tokens: float) -> float:
        """What a job newly takes."""
        run_bytes = kv_tokens * self.facts.kv_bytes.item(i) + self.facts.run_bytes.item(i)
        return self.load_bytes.item(i) + run_bytes

    def kv_counted(self, i: int, kv_tokens: float) -> float:
        """What of its KV cache counts against the pool's bound in tokens."""
        return kv_tokens if self.facts.kv_limit.item(i) < np.inf else 0.0
