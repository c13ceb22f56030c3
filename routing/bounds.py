"""How much the boards keep and show, and for how long. The scripts name some of them again."""

HEADS_A_CLASS = 256
"""Held jobs of one class that `held` shows at most, spread evenly over its sets."""
DECISIONS_KEPT = 16
RUNS_KEPT = 512
WEIGHTS_KEPT = 1_000
TOLD_MS = 10_000
"""What a router tells is not believed longer."""
ENDED_KEPT = 1_000
REFUSED_KEEP_S = 86_400
AFTER_KEEP_S = 86_400
"""Links wait for a router longer than a short-lived result does."""
TAKEN_MS = 10_000
"""After this time links that a router took and did not send are given to another."""
LONE_FALLS_LIMIT = 10
"""Crashes alone that end even a job which gets a little further each time."""
SHARED_FALLS_FREE = 1
"""Crashes in company that a job which got further is not suspected for."""
PREEMPTIONS_IN_A_ROW = 3
"""A job that was preempted so often is left alone until a whole slice of it, or all, is done."""
MEMORY_UNSEEN_MS = 10_000
"""Memory a run took this long ago shows in what its pool measures as free."""
