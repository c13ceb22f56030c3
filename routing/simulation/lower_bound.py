"""A time before which no scheduler can have ended all requests, and how much any could have trained
beside them. Owns the two bounds; knows nothing of schedulers."""

from collections.abc import Sequence

from routing.simulation.described import Described
from routing.simulation.relaxation import BUCKETS, DIRECTIONS, Program, gather, works_of
from routing.simulation.request import Request

TOLERANCE = 1e-6
"""The solver's own, taken off so that a bound stays true."""


def lower_bound_s(
    described: Described,
    requests: Sequence[Request],
    *,
    buckets: int = BUCKETS,
    directions: int = DIRECTIONS,
) -> float:
    """Seconds from time 0."""
    kinds = described.kinds
    works = works_of(described, requests)
    longest_s = max(
        work.release_s + min(kinds[i][0].work_s(work.prompt, work.output, 1) for i in work.able)
        for work in works
    )
    program = Program(kinds, gather(works, buckets, directions))
    return max(longest_s, program.least_end_s() * (1 - TOLERANCE))


def leftover_tokens(described: Described, requests: Sequence[Request], end_s: float) -> float:
    """The most that one training may have had from time 0 on, if all requests end until `end_s`."""
    works = gather(works_of(described, requests), BUCKETS, DIRECTIONS)
    return Program(described.kinds, works).most_tokens(end_s * (1 + TOLERANCE))
