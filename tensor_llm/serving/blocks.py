"""Which block of keys and values belongs to whom. Host side: knows nothing of tensors.

A block is blank, owned by one sequence or more, or free but remembered: nobody owns it, yet what
it holds is known by its digest and found again until the block is needed. Blank blocks are taken
first, then the remembered one that was owned longest ago."""

import hashlib
from array import array
from collections import OrderedDict
from collections.abc import Iterable, Sequence


def chain(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a full block: of its tokens and of all before them. 128 bits of BLAKE2b,
    so that nobody can make a prompt that is taken for another."""
    return hashlib.blake2b(parent + array("q", tokens).tobytes(), digest_size=16).digest()


class BlockPool:
    """`blocks` blocks of `block_tokens` tokens each."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        """
        Raises:
            ValueError: either is below 1.
        """
        for name, value in (("blocks", blocks), ("block_tokens", block_tokens)):
            if value < 1:
                raise ValueError(f"{name} = {value}: allowed is 1 or more")
        self.total, self.block_tokens = blocks, block_tokens
        self._owners = [0] * blocks
        # what each block holds, where that is known
        self._digests: list[bytes | None] = [None] * blocks
        self._known: dict[bytes, int] = {}
        # the lowest is taken first
        self._blank = list(range(blocks - 1, -1, -1))
        # the one that was owned longest ago comes first
        self._remembered: OrderedDict[int, None] = OrderedDict()

    @property
    def free(self) -> int:
        """Blocks that can be taken, remembered ones included."""
        return len(self._blank) + len(self._remembered)

    @property
    def used(self) -> int:
        return self.total - self.free

    def take(self, count: int) -> list[int] | None:
        """So many blocks of one's own; None where there are not enough."""
        if count > self.free:
            return None
        return [self._take_one() for _ in range(count)]

    def find(self, digests: Iterable[bytes]) -> list[int]:
        """The blocks known by these digests, up to the first unknown one; not yet shared."""
        found = []
        for digest in digests:
            block = self._known.get(digest)
            if block is None:
                break
            found.append(block)
        return found

    def owned(self, block: int) -> bool:
        return self._owners[block] > 0

    def owned_once(self, block: int) -> bool:
        return self._owners[block] == 1

    def share(self, block: int) -> None:
        """One owner more."""
        assert self._owners[block] or block in self._remembered
        self._remembered.pop(block, None)
        self._owners[block] += 1

    def remember(self, block: int, digest: bytes) -> None:
        """The block is full and will not change while it is known by `digest`. Of two blocks
        with equal content only the first is known."""
        assert self._owners[block]
        if digest not in self._known and self._digests[block] is None:
            self._known[digest] = block
            self._digests[block] = digest

    def give_back(self, blocks: Sequence[int]) -> None:
        """One owner less of each; `blocks` in the order of their sequence."""
        # the last first: the beginning of a text is found again more often than its end, and
        # nothing is found behind a block that is gone
        for block in reversed(blocks):
            assert self._owners[block]
            self._owners[block] -= 1
            if self._owners[block]:
                continue
            if self._digests[block] is None:
                self._blank.append(block)
            else:
                self._remembered[block] = None

    def check(self) -> None:
        """Raises AssertionError where the books do not balance."""
        blank, remembered = set(self._blank), set(self._remembered)
        owned = {block for block, owners in enumerate(self._owners) if owners}
        assert min(self._owners) >= 0
        assert len(blank) == len(self._blank)
        assert len(blank) + len(remembered) + len(owned) == self.total
        assert blank | remembered | owned == set(range(self.total))
        assert {self._digests[block] for block in blank} <= {None}
        assert None not in {self._digests[block] for block in remembered}
        digests = {digest: block for block, digest in enumerate(self._digests) if digest}
        assert digests == self._known

    def _take_one(self) -> int:
        if self._blank:
            block = self._blank.pop()
        else:
            block, _ = self._remembered.popitem(last=False)
            digest = self._digests[block]
            assert digest is not None
            del self._known[digest]
            self._digests[block] = None
        self._owners[block] = 1
        return block
