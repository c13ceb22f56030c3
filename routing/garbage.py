"""How often a router's process looks for garbage among its old objects."""

import gc

OLD_EVERY = 1_000
"""Young generations collected between two looks at all that is old."""


def look_at_old_objects_seldom() -> None:
    """Snapshots, held jobs and columns of a thousand pools live long: going through them all took
    0.3 s in the midst of a decision. What is young is still looked at as before."""
    young, middle, _ = gc.get_threshold()
    gc.set_threshold(young, middle, OLD_EVERY)
