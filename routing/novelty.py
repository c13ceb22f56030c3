"""When a decision says something new. Owns what two decisions must share for the second one to be
a repeat that is not kept."""

import re

from noidle.results import Decision

_NUMBER = re.compile(r"\d[\d.,]*")


def mark(decision: Decision) -> str:
    """Equal for decisions that differ in numbers only, such as predicted seconds."""
    verdicts = "|".join(f"{verdict.pool}={verdict.outcome}" for verdict in decision.verdicts)
    reason = _NUMBER.sub("#", decision.reason)
    return f"{decision.action}|{decision.pool or ''}|{reason}|{verdicts}"
