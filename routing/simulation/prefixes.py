"""Which prefix blocks a simulated pool still holds. Owns the order in which they are let go;
knows nothing of time."""

from collections import OrderedDict

from routing.simulation.request import Request


class Prefixes:
    """The least recently used block goes first."""

    def __init__(self, tokens: int) -> None:
        self._tokens = tokens
        self._blocks: OrderedDict[int, None] = OrderedDict()

    def reuse(self, request: Request) -> int:
        """Leading tokens that need not be read again; the last one always is, for its logits."""
        found = 0
        for block in request.blocks:
            if block not in self._blocks:
                break
            self._blocks.move_to_end(block)
            found += 1
        return min(found * request.block_tokens, request.prompt - 1)

    def keep(self, request: Request) -> None:
        """Its prompt was read. Later blocks go before the earlier ones they build on."""
        if not self._tokens:
            return
        for block in reversed(request.blocks):
            self._blocks[block] = None
            self._blocks.move_to_end(block)
        while len(self._blocks) * request.block_tokens > self._tokens:
            self._blocks.popitem(last=False)
