"""Jobs on their way: sent once, and again if Redis forgot them."""

import functools
import random
from collections.abc import Sequence
from dataclasses import dataclass

import redis

from noidle.acceptance import AnyJob, accept, accept_many
from noidle.link import Link

AT_ONCE = 200
"""Jobs a round trip: Redis serves others in between."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """A job and what it takes to send it again with the same outcome."""

    job: AnyJob
    # a job without a seed draws the same one each time it is sent
    entropy: int
    # by the link's clock
    sent_s: float

    def send(self, client: redis.Redis) -> None:
        """Sends the job; a second time is without effect while the first is known."""
        accept(client, self.job, rng=self.seeds)

    @property
    def seeds(self) -> random.Random:
        return random.Random(self.entropy)

    def is_due_again(self, link: Link) -> bool:
        """Whether an unknown job must have been lost: later it may have ended and expired."""
        return link.now_s() - self.sent_s < self.job.keep_s


def send_many(link: Link, submissions: Sequence[Submission]) -> None:
    """Sends all, a few hundred a round trip; raises the first refusal once all were sent."""
    refusals: list[Exception] = []
    for start in range(0, len(submissions), AT_ONCE):
        part = [(one.job, one.seeds) for one in submissions[start : start + AT_ONCE]]
        answers = link.call(functools.partial(accept_many, jobs=part))
        refusals += [answer for answer in answers if isinstance(answer, Exception)]
    if refusals:
        raise refusals[0]
