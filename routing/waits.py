"""How much longer jobs wait than was predicted, by class: what comes later and is more urgent
overtakes them, and slots are kept for it. Owns what is learned of that; knows nothing of pools."""

from collections import OrderedDict
from collections.abc import Sequence

from routing.cluster import PUNCTUAL
from routing.order import RANKS
from routing.placement import Action, Cause, Placement

WEIGHT = 0.05
"""Of a new observation."""
SLACK_S = 0.25
"""Added to what was predicted and what was seen: looks take their time."""
MOST = 50.0
REMEMBERED = 4096
"""Jobs that wait."""
OVERTAKEN = frozenset({Cause.FULL, Cause.SPARE, Cause.READING})
"""What is predicted of these is the next slot, as if nobody else came for it."""


class Waits:
    """Told of each look."""

    def __init__(self) -> None:
        # by rank; replaced when it changes
        self.factors: tuple[float, ...] = PUNCTUAL
        # by job: when it was first looked at, and the wait predicted then by the rates alone
        self._expected: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def note(self, looked: Sequence[Placement], now_ms: int) -> None:
        """A look: those that start, and the first of those that wait. Whoever waits behind others
        knows that already."""
        head = next((one for one in looked if one.action is Action.WAIT), None)
        if head is not None and head.forecast and head.forecast[2] in OVERTAKEN:
            wait_s = head.forecast[1] / self._factor(head)
            self._expected.setdefault(head.job.id, (now_ms, wait_s))
            if len(self._expected) > REMEMBERED:
                self._expected.popitem(last=False)
        if not self._expected:
            return
        for one in looked:
            first = self._expected.get(one.job.id)
            if first is None:
                continue
            ratio = min(max(_ratio(first, now_ms), 1.0), MOST)
            if one.action is Action.LEASE:
                del self._expected[one.job.id]
                # a mean on a logarithmic scale
                factor = self._factor(one)
                self._set(one, factor * (ratio / factor) ** WEIGHT)
            else:
                # a wait need not be over to show that it takes longer
                self._set(one, max(self._factor(one), ratio / 2))

    def _factor(self, one: Placement) -> float:
        return self.factors[RANKS[one.job.job_class]]

    def _set(self, one: Placement, factor: float) -> None:
        rank = RANKS[one.job.job_class]
        self.factors = (*self.factors[:rank], factor, *self.factors[rank + 1 :])


def _ratio(first: tuple[int, float], now_ms: int) -> float:
    at_ms, wait_s = first
    return ((now_ms - at_ms) / 1000 + SLACK_S) / (wait_s + SLACK_S)
