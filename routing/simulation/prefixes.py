"""Which prefix blocks a simulated pool holds. Owns the order in which they are let go; knows
nothing of time.

As in the engines: what a run uses stays while it runs, and then until its room is needed. The room
that a run may need is taken when it starts."""

from collections import Counter, OrderedDict

from routing.simulation.request import Request


class Prefixes:
    """Of what no run uses, the block that was used longest ago goes first.

    Args:
        tokens: kept at most.
        kv_tokens: room in all, of which runs take theirs first.
    """

    def __init__(self, tokens: int, kv_tokens: int) -> None:
        self._tokens = tokens
        self._kv_free = kv_tokens
        # of a block: the same for all requests of a trace
        self._block_tokens = 1
        # blocks that are there, by how many runs use them; and those that none does
        self._users: Counter[int] = Counter()
        self._idle: OrderedDict[int, None] = OrderedDict()
        # by request, the blocks it uses
        self._own: dict[int, tuple[int, ...]] = {}

    def join(self, request: Request) -> None:
        """A run takes its room."""
        self._kv_free -= request.kv_tokens
        if request.blocks and self._tokens:
            self._block_tokens = request.block_tokens
            self._use(request, self._found(request))
        self._trim()

    def reuse(self, request: Request) -> int:
        """Leading tokens that need not be read again; the last one always is, for its logits."""
        found = self._found(request)
        if found:
            # others may have read them since it joined
            self._use(request, found)
        return min(found * request.block_tokens, request.prompt - 1)

    def read(self, request: Request) -> None:
        """Its prompt was read: all of its blocks are there."""
        if request.blocks and self._tokens:
            self._use(request, len(request.blocks))

    def leave(self, request: Request) -> None:
        """A run is over. Later blocks go before the earlier ones they build on."""
        self._kv_free += request.kv_tokens
        for block in reversed(self._own.pop(request.number, ())):
            self._users[block] -= 1
            if not self._users[block]:
                del self._users[block]
                self._idle[block] = None
        self._trim()

    def _found(self, request: Request) -> int:
        found = 0
        for block in request.blocks:
            if block not in self._users and block not in self._idle:
                break
            found += 1
        return found

    def _use(self, request: Request, count: int) -> None:
        own = self._own.get(request.number, ())
        for block in request.blocks[len(own) : count]:
            self._idle.pop(block, None)
            self._users[block] += 1
        self._own[request.number] = request.blocks[: max(count, len(own))]

    def _trim(self) -> None:
        room = min(self._tokens, self._kv_free)
        while len(self._idle) * self._block_tokens > room:
            self._idle.popitem(last=False)
