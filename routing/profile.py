"""What the policy is to weigh: two profiles as data. Owns their figures and what share of a pool a
class may fill; knows nothing of jobs or pools."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from noidle.jobs import JobClass
from noidle.profile import ProfileName
from routing import preemption
from routing.preemption import Terms

ARRIVALS_S = 2.0
"""Slots are kept for the urgent jobs of so many seconds: then others have become free."""
KEPT_AT_MOST = 0.25
"""Share of a pool's slots."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """The weights of a profile."""

    name: ProfileName
    # of the slots that urgent work is likely to need soon, the share that each class leaves free
    keeps: Mapping[JobClass, float]
    # seconds after which a job counts as one class higher, each time; and after which it starves
    lift_s: float = 600.0
    starve_s: float = 1800.0
    # share of all slots that starving jobs may take by going before all
    lifted_share: float = 0.1
    # shares of a class relative to other labels; absent: 1
    weights: Mapping[str, float] = field(default_factory=dict)
    # training is served as if a person waited for it
    training_first: bool = False
    # who makes room for whom
    terms: Terms

    def kept_share(self, job_class: JobClass, urgent_per_s: float, slots: float) -> float:
        """Of each pool's slots, what jobs of the class may not take."""
        likely = urgent_per_s * ARRIVALS_S / max(slots, 1.0)
        return min(self.keeps.get(job_class, 0.0) * likely, KEPT_AT_MOST)


RESPONSE_FIRST = Profile(
    name=ProfileName.RESPONSE_FIRST,
    keeps={JobClass.STANDARD: 0.5, JobClass.BATCH: 0.7, JobClass.BACKGROUND: 1.0},
    terms=preemption.RESPONSE_FIRST,
)
TRAINING_FIRST = Profile(
    name=ProfileName.TRAINING_FIRST,
    keeps={JobClass.BACKGROUND: 0.25},
    training_first=True,
    terms=preemption.TRAINING_FIRST,
)
PROFILES = {profile.name: profile for profile in (RESPONSE_FIRST, TRAINING_FIRST)}
