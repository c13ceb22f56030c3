"""What a job waited for, in words. Owns these words; the router and the board know only the
causes."""

from noidle.results import Waited

_WORDS = {
    "full": "all slots full",
    "spare": "free slots kept for more urgent work",
    "kv": "too little KV cache free",
    "memory": "too little memory free",
    "fenced": "free room reserved for a job before it",
    "training": "another training running there",
    "alone": "for a pool of its own, as engines crashed under it",
    "reading": "prompts before it being read",
    "behind": "jobs before it",
    "closed": "no pool able to take it then",
    "unplaceable": "no pool that could ever run it",
    "room": "for others to make room for it",
}
_NOT_LOOKED_AT = "not yet looked at"
SHOWN_S = 0.005
"""Less is rounding."""


def waited_in_words(waited: Waited) -> str:
    """`waited 3.20 s: 2.90 s all slots full, 0.30 s not yet looked at`, the longest first."""
    told = dict(waited.causes)
    rest_s = waited.held_s - sum(told.values())
    parts = {_WORDS.get(cause, cause): span_s for cause, span_s in told.items()}
    parts[_NOT_LOOKED_AT] = rest_s
    shown = sorted(parts.items(), key=lambda part: -part[1])
    words = [f"{span_s:.2f} s {what}" for what, span_s in shown if span_s >= SHOWN_S]
    return f"waited {waited.held_s:.2f} s{': ' if words else ''}{', '.join(words)}"
