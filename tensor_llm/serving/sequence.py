"""How far one request has come. Owns no decisions: the scheduler and the core change it.

`read` counts at the launch of a step, `tokens` grow when it lands; in between `pending` tokens
exist on the device only."""

from tensor_llm.serving.request import Request


class Sequence:
    """Compared by identity. `order` numbers the requests of a core as they came."""

    __slots__ = (
        "added_s",
        "blocks",
        "decoding",
        "digests",
        "dropped",
        "ended",
        "evictions",
        "first_scheduled_s",
        "first_token_s",
        "flying",
        "last_token_s",
        "leaving",
        "limit",
        "order",
        "passed",
        "pending",
        "read",
        "remembered",
        "request",
        "reused_tokens",
        "row",
        "scored",
        "tokens",
    )

    def __init__(self, request: Request, order: int, now_s: float) -> None:
        self.request = request
        self.order = order
        # prompt and what was generated, the end token left out
        self.tokens = list(request.tokens)
        # the length at which it ends
        self.limit = len(request.tokens) + request.max_tokens
        # tokens whose keys and values lie in blocks, or will when the steps under way land
        self.read = 0
        # tokens that steps under way choose
        self.pending = 0
        # steps under way that it is part of
        self.flying = 0
        self.blocks: list[int] = []
        # of its full blocks, as far as computed; how many of its blocks are known by them
        self.digests: list[bytes] = []
        self.remembered = 0
        # its row in the block table while it is running
        self.row: int | None = None
        # all but its newest token is read
        self.decoding = False
        # evicted, dropped or ended, yet part of a step under way
        self.leaving = False
        self.dropped = False
        self.ended = False
        # plans that gave it nothing since it last got something
        self.passed = 0
        self.evictions = 0
        # log-probabilities of its text that have come out
        self.scored = 0
        # tokens found in others' blocks when it began
        self.reused_tokens = 0
        self.added_s = now_s
        self.first_scheduled_s: float | None = None
        self.first_token_s: float | None = None
        self.last_token_s: float | None = None

    @property
    def rank(self) -> int:
        return self.request.rank

    @property
    def generated(self) -> int:
        """Tokens that have come out so far."""
        return len(self.tokens) - len(self.request.tokens)

    @property
    def to_read(self) -> int:
        """Tokens that must be read before something comes out."""
        return len(self.tokens) - self.request.score
