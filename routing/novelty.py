"""When a decision or a snapshot says something new. Owns what two of them must share for the second
one to be a repeat."""

import re

from noidle.results import Decision
from noidle.snapshot import PoolSnapshot, PoolState, Pressure

_NUMBER = re.compile(r"\d[\d.,]*")


def mark(decision: Decision) -> str:
    """Equal for decisions that differ in numbers only, such as predicted seconds."""
    verdicts = "|".join(f"{verdict.pool}={verdict.outcome}" for verdict in decision.verdicts)
    reason = _NUMBER.sub("#", decision.reason)
    return f"{decision.action}|{decision.pool or ''}|{reason}|{verdicts}"


def takes_leases(snapshot: PoolSnapshot) -> bool:
    return snapshot.state is PoolState.READY and snapshot.pressure is not Pressure.HARD


def snapshot_mark(snapshot: PoolSnapshot) -> str:
    """What wakes the pump when it changes; `open` first where the pool takes leases."""
    parts = (
        snapshot.state.value,
        snapshot.pressure.value,
        str(snapshot.slots),
        snapshot.storage or "",
        *snapshot.kinds,
        *snapshot.models,
    )
    return f"{'open' if takes_leases(snapshot) else 'shut'} {' '.join(parts)}"
