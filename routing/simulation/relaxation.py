"""What must be done on the pools of a cluster in any case, as a linear program. Owns the work, its
gathering and the program's rows; knows nothing of schedulers.

The relaxation of scheduling on unrelated machines with release times: a request may be split over
pools at will. A step is at least as long as its part of a prompt takes, and as its decoding takes
in a full batch, so each pool's time bounds two sums: of what prompts take there, and of what decode
steps take in full batches; to both goes what each sequence adds to a step, and the time that
training has. For each release time r, the work that comes at or after r must fit between r and the
end on every pool. Requests are gathered so that the program stays small; each gathering rounds work
and releases down, so what is asked for is never more than what must be done."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from routing.simulation.described import Described, DescribedPool
from routing.simulation.request import Request

BUCKETS = 48
"""Release times that are told apart."""
DIRECTIONS = 32
"""Ratios of answer to prompt that are told apart."""
_Entry = tuple[int, int, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class Work:
    """What must be done in any case; tokens, seconds."""

    release_s: float
    prompt: float
    output: float
    # indices of the kinds of pools that may do it
    able: tuple[int, ...]


def works_of(described: Described, requests: Sequence[Request]) -> list[Work]:
    """Prompts less what an ideal cache saves, and once what several prompts share: any of the
    pools may read that, apart from the rest."""
    kinds = [pool for pool, _ in described.kinds]
    everywhere = tuple(range(len(kinds)))
    shared = _shared_blocks(described, requests)
    # tokens of a shared block, and when it is first asked for
    blocks: dict[int, tuple[int, float]] = {}
    works = []
    for one in requests:
        own = one.prompt
        for place, block in enumerate(one.blocks):
            if block in shared:
                tokens = min(one.block_tokens, one.prompt - 1 - place * one.block_tokens)
                own -= max(tokens, 0)
                known, first_s = blocks.get(block, (tokens, one.arrive_s))
                blocks[block] = min(known, max(tokens, 0)), min(first_s, one.arrive_s)
        able = tuple(i for i in everywhere if one.kv_tokens <= kinds[i].kv_tokens)
        works.append(Work(release_s=one.arrive_s, prompt=max(own, 1), output=one.output, able=able))
    works += [
        Work(release_s=first_s, prompt=tokens, output=0, able=everywhere)
        for tokens, first_s in blocks.values()
        if tokens > 0
    ]
    return works


def _shared_blocks(described: Described, requests: Sequence[Request]) -> frozenset[int]:
    if not any(pool.cache_tokens for pool, _ in described.kinds):
        return frozenset()
    counts = Counter(block for one in requests for block in one.blocks)
    return frozenset(block for block, count in counts.items() if count > 1)


def gather(works: Sequence[Work], buckets: int, directions: int) -> list[Work]:
    """Sums of works that are released in one bucket, may go to the same pools, and have nearly
    the same ratio of answer to prompt. Works of one ratio may be summed without loss: where a
    part of the sum goes, the same part of each of them may go."""
    release = _edges([work.release_s for work in works], buckets)
    ratio = _edges([work.output / work.prompt for work in works], directions)
    groups: dict[tuple[int, int, tuple[int, ...]], list[Work]] = defaultdict(list)
    for work in works:
        place = _below(release, work.release_s), _below(ratio, work.output / work.prompt)
        groups[*place, work.able].append(work)
    return [_sum(group) for group in groups.values()]


def _sum(group: Sequence[Work]) -> Work:
    """Each is first rounded down to the median ratio, in the token kind it has too much of."""
    ratios = sorted(work.output / work.prompt for work in group)
    ratio = ratios[len(ratios) // 2]
    prompt = sum(min(work.prompt, work.output / ratio) if ratio else work.prompt for work in group)
    return Work(
        release_s=min(work.release_s for work in group),
        prompt=prompt,
        output=prompt * ratio,
        able=group[0].able,
    )


def _edges(values: list[float], count: int) -> list[float]:
    """Lower edges of at most `count` ranges with about as many values each."""
    ordered = sorted(values)
    return sorted({ordered[len(ordered) * i // count] for i in range(count)})


def _below(edges: list[float], value: float) -> int:
    low, high = 0, len(edges)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if edges[middle] <= value else (low, middle)
    return low


class Program:
    """Variables: the end; for each kind of pool and release time, the reading there from then on,
    then as many for the decoding; for each work and kind, the part of it done there; for each kind,
    the seconds in which it trains."""

    def __init__(self, kinds: Sequence[tuple[DescribedPool, int]], works: Sequence[Work]) -> None:
        import numpy as np

        self._pools = pools = [pool for pool, _ in kinds]
        # pools of each kind: they are one in the program, with the time of all
        counts = np.repeat([float(count) for _, count in kinds], len({w.release_s for w in works}))
        self._counts = np.tile(counts, 2)
        self._works = works
        self._releases = sorted({work.release_s for work in works})
        self._pairs = [(w, i) for w, work in enumerate(works) for i in work.able]
        self._half = len(pools) * len(self._releases)
        self._tails = 2 * self._half
        self._taught = 1 + self._tails + len(self._pairs)
        self.columns = self._taught + len(pools)
        releases = np.tile(np.array(self._releases), 2 * len(pools))
        self.limits = np.append(-releases * self._counts, 0.0)
        self.wanted = np.concatenate([np.zeros(self._tails), np.ones(len(works))])
        self.equal = self._matrix(self._tails + len(works), [*self._sums(), *self._parts()])
        self.below = self._matrix(self._tails + 1, [*self._ends(), *self._training()])

    def _matrix(self, rows: int, entries: Iterable[_Entry]) -> Any:
        from scipy.sparse import csr_array

        row, column, value = zip(*entries, strict=True)
        return csr_array((value, (row, column)), shape=(rows, self.columns))

    def _sums(self) -> Iterator[_Entry]:
        """tail[i, k] - tail[i, k + 1] - work released at k and done in i = 0."""
        last = len(self._releases) - 1
        for row in range(self._tails):
            yield row, 1 + row, 1.0
            if row % (last + 1) < last:
                yield row, 2 + row, -1.0

    def _parts(self) -> Iterator[_Entry]:
        """The work in those sums; and all parts of a work are one whole."""
        at = {release_s: k for k, release_s in enumerate(self._releases)}
        for place, (w, i) in enumerate(self._pairs):
            work, pool, column = self._works[w], self._pools[i], 1 + self._tails + place
            row = i * len(self._releases) + at[work.release_s]
            yield row, column, -pool.reading_s(work.prompt, work.output)
            yield self._half + row, column, -pool.decoding_s(work.output)
            yield self._tails + w, column, 1.0

    def _ends(self) -> Iterator[_Entry]:
        """tail[i, k] - end <= -release k, for as many pools as there are of kind i."""
        for row in range(self._tails):
            yield row, 1 + row, 1.0
            yield row, 0, -self._counts.item(row)

    def _training(self) -> Iterator[_Entry]:
        """What is done from the first release on leaves the rest of a pool's time to training; and
        one training is in one pool at a time."""
        for i in range(len(self._pools)):
            row, column = i * len(self._releases), self._taught + i
            yield row, column, 1.0
            yield self._half + row, column, 1.0
            yield self._tails, column, 1.0
        yield self._tails, 0, -1.0

    def least_end_s(self) -> float:
        """When all of the work may have been done at the earliest, without training."""
        cost = [0.0] * self.columns
        cost[0] = 1.0
        bounds = [(0.0, None)] * self._taught + [(0.0, 0.0)] * len(self._pools)
        return self._solve(cost, bounds)

    def most_tokens(self, end_s: float) -> float:
        """That may be trained if all of the work is done until then."""
        cost = [0.0] * self._taught + [-(pool.train_tokens_per_s or 0.0) for pool in self._pools]
        bounds: list[tuple[float, float | None]] = [(0.0, None)] * self.columns
        bounds[0] = (0.0, end_s)
        return -self._solve(cost, bounds)

    def _solve(self, cost: list[float], bounds: Sequence[tuple[float, float | None]]) -> float:
        # so that a start of noidle needs no scipy
        from scipy.optimize import linprog

        solved = linprog(
            cost,
            A_ub=self.below,
            b_ub=self.limits,
            A_eq=self.equal,
            b_eq=self.wanted,
            bounds=bounds,
            method="highs",
        )
        assert solved.status == 0, solved.message
        return float(solved.fun)
