"""How a prompt begins, as short hashes: prompts that begin alike may share a KV cache. Owns the
places at which a beginning is cut; knows nothing of who remembers them."""

import hashlib
from collections.abc import Iterator

FIRST_BYTES = 512
"""A shorter beginning saves too little to matter."""
HASH_BYTES = 6


def cuts(length: int) -> Iterator[int]:
    """Where a text of so many bytes is cut: at 2 and 3 times each power of two, so that what is
    shared is met to within a third and a megabyte has no more than two dozen beginnings."""
    step = FIRST_BYTES
    while step <= length:
        yield step
        if step >= 2 * FIRST_BYTES and step * 3 // 2 <= length:
            yield step * 3 // 2
        step *= 2


def beginnings(text: bytes) -> list[tuple[int, str]]:
    """Bytes and hash of each beginning, the shortest first."""
    state = hashlib.blake2b(digest_size=HASH_BYTES)
    found = []
    done = 0
    for cut in cuts(len(text)):
        state.update(text[done:cut])
        done = cut
        found.append((cut, state.hexdigest()))
    return found
