"""What a job waits for, and what keeps it from starting in a pool. Owns the words for it."""

from routing.placement import Action, Cause, Placement

WORDS = {
    Cause.FREE: "a slot is free",
    Cause.FULL: "all slots are taken",
    Cause.SPARE: "what is free there is kept for more urgent work",
    Cause.KV: "too little KV cache is free",
    Cause.MEMORY: "too little memory is free",
    Cause.FENCED: "what is free is reserved for a job before it",
    Cause.TRAINING: "another training runs there",
    Cause.ALONE: "the job must run alone",
    Cause.READING: "prompts sent there before it are still to be read",
}
ROOM = "room"
"""A run that makes room for it."""
BEHIND = "behind"
"""Jobs before it: no pool was looked at for it."""
CLOSED = "closed"
"""Any pool that may take it now."""


def cause_of(placement: Placement) -> str | None:
    """What it waits for from now on; noidle.waiting has the words. None where it does not wait."""
    if placement.action is Action.UNPLACEABLE:
        return placement.action.value
    if placement.action is not Action.WAIT:
        return None
    if placement.view is None:
        return BEHIND
    return placement.forecast[2].value if placement.forecast else CLOSED
