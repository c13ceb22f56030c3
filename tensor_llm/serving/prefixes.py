"""Equal beginnings of texts: found in blocks that are known, or being read by somebody.

Owns the digests of sequences' blocks and who reads which for the first time. Knows nothing of
rows, ranks or steps."""

from tensor_llm.serving.blocks import BlockPool, chain
from tensor_llm.serving.sequence import Sequence


class Prefixes:
    """Only whole blocks are shared, and never the one with a text's last token: its logits are
    wanted. A scored text shares nothing that others read, as it wants the logits of all."""

    def __init__(self, pool: BlockPool, salt: str) -> None:
        self._pool = pool
        self._root = chain(salt.encode(), ())
        self._readers: dict[bytes, Sequence] = {}

    def find(self, one: Sequence) -> list[int]:
        """Blocks that hold the beginning of what it has to read; not yet shared."""
        return self._pool.find(self._sharable(one))

    def reader_of(self, one: Sequence) -> Sequence | None:
        """Who is reading the first block that is not found."""
        digests = self._sharable(one)
        found = len(self._pool.find(digests))
        return self._readers.get(digests[found]) if found < len(digests) else None

    def share(self, one: Sequence) -> list[int]:
        """Makes it an owner of what is found, and the reader of what is not."""
        digests = self._sharable(one)
        found = self._pool.find(digests)
        for block in found:
            self._pool.share(block)
        for digest in digests[len(found) :]:
            self._readers.setdefault(digest, one)
        return found

    def remember(self, one: Sequence, upto: int) -> None:
        """Its first `upto` tokens are in its blocks: others may find them."""
        if not one.request.reuse:
            return
        full = upto // self._pool.block_tokens
        for index, digest in enumerate(self._digests(one, full)[one.remembered : full]):
            self._pool.remember(one.blocks[one.remembered + index], digest)
            self._forget(one, digest)
        one.remembered = full

    def forget_reader(self, one: Sequence) -> None:
        for digest in one.digests[one.remembered :]:
            self._forget(one, digest)

    def _forget(self, one: Sequence, digest: bytes) -> None:
        if self._readers.get(digest) is one:
            del self._readers[digest]

    def _sharable(self, one: Sequence) -> list[bytes]:
        if one.request.score or not one.request.reuse:
            return []
        full = (one.to_read - 1) // self._pool.block_tokens
        return self._digests(one, full)[:full]

    def _digests(self, one: Sequence, full: int) -> list[bytes]:
        """At least of its first `full` blocks."""
        size = self._pool.block_tokens
        while len(one.digests) < full:
            first = len(one.digests) * size
            parent = one.digests[-1] if one.digests else self._root
            one.digests.append(chain(parent, one.tokens[first : first + size]))
        return one.digests
