"""Finds processes that live but do not work: a pool that publishes nothing or takes nothing
from its queue, hosts without a deciding router. Owns the judgement; restarting is the
supervisor's."""

from collections.abc import Mapping
from dataclasses import dataclass

from noidle.snapshot import PoolSnapshot, PoolState


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """What was seen of one process at one look; Redis answered."""

    # it publishes, or holds the pump's role
    present: bool
    # messages lie in its queue although it has room
    idle_with_work: bool = False


class Watchdog:
    """Judges by how long something has been wrong without a break.

    Args:
        patience_s: a garbage collection, a reload or a slow disk is no reason to kill.
    """

    def __init__(self, patience_s: float = 20.0) -> None:
        self._patience_s = patience_s
        self._wrong_since: dict[str, tuple[str, float]] = {}

    def judge(self, sights: Mapping[str, Sight], now_s: float) -> dict[str, str]:
        """Process name to what is wrong with it, for those to restart. A look that is missing
        (Redis away, process just started) breaks the row."""
        found = {name: fault for name, sight in sights.items() if (fault := _fault(sight))}
        self._wrong_since = {
            name: (fault, self._since(name, fault, now_s)) for name, fault in found.items()
        }
        late = {
            name: fault
            for name, (fault, since_s) in self._wrong_since.items()
            if now_s - since_s >= self._patience_s
        }
        for name in late:
            del self._wrong_since[name]
        return late

    def _since(self, name: str, fault: str, now_s: float) -> float:
        former, since_s = self._wrong_since.get(name, (fault, now_s))
        return since_s if former == fault else now_s


def sight_of_pool(snapshot: PoolSnapshot | None, waiting: int) -> Sight:
    """`waiting`: messages in the pool's queues. A pool that cannot take jobs just now, or is
    full, is right to leave them there."""
    if snapshot is None:
        return Sight(present=False)
    has_room = snapshot.state is PoolState.READY and snapshot.in_flight < snapshot.slots
    return Sight(present=True, idle_with_work=has_room and waiting > 0)


def _fault(sight: Sight) -> str | None:
    if not sight.present:
        return "lives, but has not been heard of"
    if sight.idle_with_work:
        return "has free slots, but takes nothing from its queue"
    return None
