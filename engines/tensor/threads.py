"""How many threads compute: as many as decoding gains from, all of them where training does.

Owns when that is measured: before the first answer, not before the hello, since the kernels that
it measures with may have to be built. Knows nothing of what is computed."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from tensor_llm.threads import use_threads


class Threads:
    """One for the loop's thread, which must be the one to call it."""

    def __init__(
        self, most: int, *, measured: bool, use: Callable[[int], int] = use_threads
    ) -> None:
        """`measured`: it is worth finding out whether fewer do as well."""
        self._most, self._measured, self._use = most, measured, use
        self.decoding = most
        torch.set_num_threads(most)

    def settle(self) -> None:
        """Measures the first time; a tenth of a second."""
        if self._measured and self._most > 1:
            self._measured = False
            self.decoding = self._use(self._most)

    @contextmanager
    def all_of_them(self) -> Iterator[None]:
        """Training computes more than it reads, so that every core counts."""
        if self.decoding == self._most:
            yield
            return
        torch.set_num_threads(self._most)
        try:
            yield
        finally:
            torch.set_num_threads(self.decoding)
