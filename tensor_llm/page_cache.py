"""How much of a file the system already holds in memory, so that a load can be called cold or
warm.

Knows nothing of what the files are."""

import ctypes
import mmap
from collections.abc import Iterable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

WARM_SHARE = 0.9
"""From here on a load reads next to nothing from storage."""


def resident_share(paths: Iterable[Path]) -> float | None:
    """Share of the files' pages that lie in memory; None where the system does not tell.

    Linux answers 1 for a file that is neither this user's nor writable.
    """
    held = total = 0
    for path in paths:
        pages = _pages(path)
        if pages is None:
            return None
        held, total = held + int(pages.sum()), total + len(pages)
    return held / total if total else None


def temperature(share: float | None) -> str:
    """In one word, for people."""
    if share is None:
        return "unmeasured"
    return "warm" if share >= WARM_SHARE else "cold"


def _pages(path: Path) -> NDArray[np.uint8] | None:
    """1 for each page in memory, else 0; None where nobody can tell."""
    try:
        libc = ctypes.CDLL(None, use_errno=True)
        with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as view:
            found = np.zeros(-(-len(view) // mmap.PAGESIZE), dtype=np.uint8)
            first = ctypes.c_char.from_buffer(view)
            address = ctypes.c_void_p(ctypes.addressof(first))
            status = libc.mincore(
                address, ctypes.c_size_t(len(view)), found.ctypes.data_as(ctypes.c_void_p)
            )
            # the map cannot be closed while this points into it
            del first
    # no such call, no such file, or an empty one
    except (OSError, AttributeError, TypeError, ValueError):
        return None
    return np.bitwise_and(found, np.uint8(1)) if status == 0 else None
