"""The block table on the device: which blocks hold which row's tokens.

Letters: S rows, X blocks of a row."""

from collections.abc import Iterable

import torch

from tensor_llm.upload import upload


class BlockTable:
    """Written only where something changes, in place. Behind a row's end lies any block."""

    def __init__(self, rows: int, width: int, device: torch.device) -> None:
        self.table_SX = torch.zeros((rows, width), dtype=torch.int64, device=device)
        self._flat = self.table_SX.view(-1)

    def write(self, news: Iterable[tuple[int, int, list[int]]]) -> None:
        """Row, place of the first block in it, blocks."""
        width = self.table_SX.shape[1]
        at: list[int] = []
        blocks: list[int] = []
        for row, place, new in news:
            first = row * width + place
            at += range(first, first + len(new))
            blocks += new
        if not at:
            return
        # a row may be written twice: the later counts, and a device keeps no order in one write
        latest = dict(zip(at, blocks, strict=True))
        both = upload([*latest, *latest.values()], torch.int64, self.table_SX.device)
        self._flat.index_copy_(0, both[: len(latest)], both[len(latest) :])
