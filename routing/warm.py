"""Which pools likely hold the KV cache of a prompt's beginning. Owns what this router remembers of
where such prompts went, within what each pool says it keeps; knows nothing of what that saves."""

from collections import OrderedDict, defaultdict
from collections.abc import Mapping, Set

from routing.board import HeldJob
from routing.placement import Placement


def room_bytes(placement: Placement) -> float:
    """What the pool of a placement keeps of prompts."""
    pool, view = placement.pool, placement.view
    assert pool is not None
    assert view is not None
    return (pool.prefix_cache_tokens or 0) * view.model.bytes_per_token


class Warm:
    """As the pools' own caches, each lets the beginning go that was used longest ago."""

    def __init__(self) -> None:
        self._pools: dict[str, OrderedDict[str, int]] = {}
        self._bytes: dict[str, int] = {}
        self._where: defaultdict[str, set[str]] = defaultdict(set)

    @property
    def where(self) -> Mapping[str, Set[str]]:
        """The pools by the hash of a beginning."""
        return self._where

    def note(self, job: HeldJob, pool: str, room_bytes: float) -> None:
        """The job's prompt is read in a pool that keeps so many bytes of prompts."""
        if not job.beginnings or room_bytes <= 0:
            return
        kept = self._pools.setdefault(pool, OrderedDict())
        before = 0
        sizes = []
        for size, digest in job.beginnings:
            sizes.append((digest, size - before))
            before = size
        # what is longer goes before the shorter that it builds on
        for digest, size in reversed(sizes):
            if kept.pop(digest, None) is None:
                self._bytes[pool] = self._bytes.get(pool, 0) + size
                self._where[digest].add(pool)
            kept[digest] = size
        while self._bytes[pool] > room_bytes:
            self._let_go(pool, *kept.popitem(last=False))

    def forget(self, pools: Set[str]) -> None:
        """All pools but these are gone, and their caches with them."""
        for pool in self._pools.keys() - pools:
            for digest, size in self._pools.pop(pool).items():
                self._let_go(pool, digest, size)
            del self._bytes[pool]

    def _let_go(self, pool: str, digest: str, size: int) -> None:
        self._bytes[pool] -= size
        self._where[digest].discard(pool)
        if not self._where[digest]:
            del self._where[digest]
