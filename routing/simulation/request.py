"""One request of a replay, fitted to a cluster, and what became of it. Owns the records and the
sharing out of classes and labels; knows nothing of who decides."""

import math
from dataclasses import dataclass, field

from noidle.beginning import FIRST_BYTES, cuts
from noidle.jobs import JobClass
from routing.board import HeldJob
from routing.order import RANKS
from routing.prediction import KV_BLOCK_TOKENS
from routing.simulation.described import BYTES_PER_TOKEN, MODEL

EPOCH_MS = 1_800_000_000_000
"""Virtual time 0 on the clock the policy sees."""
_CLASSES = (
    (0.50, JobClass.INTERACTIVE),
    (0.80, JobClass.STANDARD),
    (0.95, JobClass.BATCH),
    (1.00, JobClass.BACKGROUND),
)
_LABELS = ((0.4, "north"), (0.7, "east"), (0.9, "south"), (1.0, "west"))
SHARING = (
    "rows are shared out by a hash of their number, or of their first block: 50 % interactive, "
    "30 % standard, 15 % batch, 5 % background; four labels with 40, 30, 20 and 10 %"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """Lengths in tokens."""

    # its place in the trace
    number: int
    arrive_s: float
    prompt: int
    output: int
    job_class: JobClass
    label: str
    # ids of the prompt's blocks, and tokens of a whole one
    blocks: tuple[int, ...] = ()
    block_tokens: int = 1

    @property
    def id(self) -> str:
        return f"{self.number:07d}"

    @property
    def kv_tokens(self) -> int:
        """Counted as routing.prediction does."""
        return -(-(self.prompt + self.output) // KV_BLOCK_TOKENS) * KV_BLOCK_TOKENS

    def held(self) -> HeldJob:
        """What the board would show of it; the producer asks for just as many tokens as the
        trace says were made."""
        arrived_ms = clock_ms(self.arrive_s)
        return HeldJob(
            id=self.id,
            kind="generate",
            model=MODEL,
            job_class=self.job_class,
            engine=None,
            label=self.label,
            prompt_bytes=int((self.prompt - 1) * BYTES_PER_TOKEN),
            max_tokens=self.output,
            storage=None,
            accepted_ms=arrived_ms,
            held_since_ms=arrived_ms,
            order=float(arrived_ms),
            beginnings=self._beginnings(),
        )

    def _beginnings(self) -> tuple[tuple[int, str], ...]:
        """Cut where noidle.beginning cuts; equal ids of blocks are equal prefixes already."""
        block_bytes = int(self.block_tokens * BYTES_PER_TOKEN)
        whole = min(len(self.blocks), self.prompt // self.block_tokens)
        at = [cut // FIRST_BYTES for cut in cuts(whole * FIRST_BYTES)]
        return tuple((count * block_bytes, str(self.blocks[count - 1])) for count in at)


@dataclass(frozen=True, slots=True, kw_only=True)
class Stint:
    """One stay of a request in a pool, and the wait for it; seconds of virtual time."""

    pool: int
    # it waited from then on
    since_s: float
    start_s: float
    # infinite: it left before its prompt was read
    read_s: float
    end_s: float
    # tokens that were to be read, and answer tokens made before
    prompt: int
    made: int


@dataclass(slots=True, kw_only=True)
class Fate:
    """What became of a request; seconds of virtual time."""

    request: Request
    # of the last stint: index of the pool, its start, and when its prompt was read there
    pool: int
    start_s: float
    read_s: float = math.inf
    first_s: float = 0.0
    finish_s: float = 0.0
    # absent where the scheduler predicts nothing
    predicted_s: float | None = None
    # prompt tokens that were in the pool's prefix cache
    reused: int = 0
    # answer tokens made in earlier stints, which ended in an eviction
    made: int = 0
    earlier: list[Stint] = field(default_factory=list)

    @property
    def rank(self) -> int:
        """The smaller is served first."""
        return RANKS[self.request.job_class]

    @property
    def since_s(self) -> float:
        """It waited for its last stint from then on."""
        return self.earlier[-1].end_s if self.earlier else self.request.arrive_s

    @property
    def stints(self) -> list[Stint]:
        """All of them, the last to its end."""
        return [*self.earlier, self.stint(self.finish_s, self.made)]

    def stint(self, end_s: float, made: int) -> Stint:
        """The last one, if it ended then; so many tokens had been made before it."""
        return Stint(
            pool=self.pool,
            since_s=self.since_s,
            start_s=self.start_s,
            read_s=self.read_s,
            end_s=end_s,
            prompt=self.request.prompt + made - self.reused,
            made=made,
        )

    def resume(self, pool: int, now_s: float, predicted_s: float | None) -> None:
        """The next stint begins."""
        self.pool, self.start_s, self.predicted_s = pool, now_s, predicted_s
        self.read_s = math.inf


def clock_ms(virtual_s: float) -> int:
    """What the clock that the policy sees tells then."""
    return EPOCH_MS + int(virtual_s * 1000)


def class_of(number: int) -> JobClass:
    """The same for the same row, always."""
    return next(found for until, found in _CLASSES if _spread(number, 2_654_435_761) < until)


def label_of(number: int) -> str:
    """Independent of the class."""
    return next(found for until, found in _LABELS if _spread(number, 2_246_822_519) < until)


def _spread(number: int, factor: int) -> float:
    """Multiplicative hashing (Knuth, TAOCP vol. 3, 6.4): neighbours land far apart."""
    return ((number + 1) * factor % 2**32) / 2**32
