"""Which block of keys and values belongs to whom. Host side: knows nothing of tensors."""

import hashlib
from array import array
from collections.abc import Iterable, Sequence


def chain(parent: bytes, tokens: Sequence[int]) -> bytes:
    """The digest of a full block: of its tokens and of all before them. 128 bits of BLAKE2b,
    so that nobody can make a prompt that is taken for another."""
    raise NotImplementedError


class BlockPool:
    """`blocks` blocks of `block_tokens` tokens each."""

    def __init__(self, blocks: int, block_tokens: int) -> None:
        self.total, self.block_tokens = blocks, block_tokens

    @property
    def free(self) -> int:
        """Blocks that can be taken, remembered ones included."""
        raise NotImplementedError

    @property
    def used(self) -> int:
        raise NotImplementedError

    def take(self, count: int) -> list[int] | None:
        """So many blocks of one's own; None where there are not enough."""
        raise NotImplementedError

    def find(self, digests: Iterable[bytes]) -> list[int]:
        """The blocks known by these digests, up to the first unknown one; not yet shared."""
        raise NotImplementedError

    def share(self, block: int) -> None:
        """One owner more."""
        raise NotImplementedError

    def remember(self, block: int, digest: bytes) -> None:
        """The block is full and will not change while it is known by `digest`."""
        raise NotImplementedError

    def give_back(self, blocks: Sequence[int]) -> None:
        """One owner less of each; `blocks` in the order of their sequence."""
        raise NotImplementedError

    def check(self) -> None:
        """Raises AssertionError where the books do not balance."""
        raise NotImplementedError


assert hashlib and array
