"""What each sequence does in a step, so that it can be undone and tried alone."""

from dataclasses import dataclass

from tensor_llm.serving.scheduler import Plan
from tensor_llm.serving.sequence import Sequence


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """One sequence's share of a step, and how it stood before."""

    start: int
    decoding: bool
    plan: Plan


def parts_of(plan: Plan) -> dict[Sequence, Part]:
    """Of a step that failed, when all steps before it have landed."""
    parts = {}
    for one in plan.decodes:
        # what it read was the newest token that is known
        start = len(one.tokens) - 1
        parts[one] = Part(start=start, decoding=True, plan=Plan(decodes=[one]))
    for piece in plan.pieces:
        alone = Plan(pieces=[piece])
        parts[piece.sequence] = Part(start=piece.start, decoding=False, plan=alone)
    return parts
