"""Side by side: the same prompts, weights and threads, round by round, one side after the other."""

import random
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tests.bench.cpu.shape import CONFIG, Format
from tests.bench.cpu.sides import SideProcess, running
from tests.bench.cpu.taking import Taken
from tests.bench.figures import Aim, Spread, ratios

Say = Callable[[str], None]
NOIDLE, LLAMA, TRANSFORMERS = "noidle", "llama.cpp", "transformers"
# prompts of all sequences together have as many tokens
_PROMPT_TOKENS, _STEPS = 512, 64
_SEED = 1


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True)


class Row(_Record):
    """One side at one format with so many sequences."""

    side: str
    format: Format
    sequences: int
    prefill_tokens_per_s: Spread
    decode_tokens_per_s: Spread
    # bytes of weights, keys and values a decode step reads, over what the threads can read in its
    # time
    bandwidth_share: Spread
    # of the sequences' first tokens, those that are noidle's, too
    first_tokens_alike: float


class SpeedFigures(_Record):
    threads: int
    rounds: int
    versions: dict[str, str]
    step_bytes: dict[str, int]
    bandwidth_bytes_per_s: Spread
    rows: tuple[Row, ...]
    aims: tuple[Aim, ...]


class _Case(_Record):
    format: Format
    sequences: int

    @property
    def name(self) -> str:
        plural = "sequences" if self.sequences > 1 else "sequence"
        return f"{self.format}, {self.sequences} {plural}"


class _Found:
    """What one case gave, round by round."""

    def __init__(self, case: _Case) -> None:
        self.case = case
        self.bandwidth: list[float] = []
        self.taken: dict[str, list[Taken]] = {}

    def prefill(self, side: str) -> list[float]:
        return [_PROMPT_TOKENS / one.prefill_s for one in self.taken[side]]

    def decode(self, side: str) -> list[float]:
        return [self.case.sequences * _STEPS / one.decode_s for one in self.taken[side]]

    def row(self, side: str, step_bytes: int) -> Row:
        taken = self.taken[side]
        pairs = zip(self.decode(side), self.bandwidth, strict=True)
        read = step_bytes + self._past_bytes()
        share = [rate / self.case.sequences * read / top for rate, top in pairs]
        same = [
            mine == theirs
            for one, other in zip(taken, self.taken[NOIDLE], strict=True)
            for mine, theirs in zip(one.first_tokens, other.first_tokens, strict=True)
        ]
        return Row(
            side=side,
            format=self.case.format,
            sequences=self.case.sequences,
            prefill_tokens_per_s=Spread.of(self.prefill(side)),
            decode_tokens_per_s=Spread.of(self.decode(side)),
            bandwidth_share=Spread.of(share),
            first_tokens_alike=sum(same) / len(same),
        )

    def _past_bytes(self) -> float:
        """Of keys and values, in the middle of decoding; all sides keep them in 16 bits."""
        tokens = _PROMPT_TOKENS + self.case.sequences * _STEPS / 2
        return tokens * CONFIG.kv_bytes_per_token(2)

    def aims(self) -> Iterator[Aim]:
        for what, rates in (("prefill", self.prefill), ("decode", self.decode)):
            for other, least in ((LLAMA, 0.8), (TRANSFORMERS, 2.0)):
                if other in self.taken:
                    found = ratios(rates(NOIDLE), rates(other))
                    name = f"{what}, {self.case.name}: noidle by {other}"
                    yield Aim(what=name, found=found, unit="", at_least=least)


def measure_speed(
    folder: Path, threads: int, rounds: int, sides: Sequence[str], say: Say
) -> SpeedFigures:
    cases = [_Case(format=one, sequences=count) for count in (1, 8) for one in Format]
    with running(sides, folder, threads) as processes:
        step_bytes = _load(processes, say)
        found = [_take(case, processes, rounds, say) for case in cases]
        versions = {side.name: side.version for side in processes}
    rows = [
        one.row(side, step_bytes[f"{side} {one.case.format}"])
        for one in found
        for side in sides
        if side in one.taken
    ]
    aims = [aim for one in found for aim in one.aims()]
    return SpeedFigures(
        threads=threads,
        rounds=rounds,
        versions=versions,
        step_bytes=step_bytes,
        bandwidth_bytes_per_s=Spread.of([top for one in found for top in one.bandwidth]),
        rows=tuple(rows),
        aims=(*aims, *_share_aims(rows)),
    )


def _load(processes: Sequence[SideProcess], say: Say) -> dict[str, int]:
    found = {}
    for side in processes:
        for format_ in side.formats:
            say(f"{side.name} loads {format_}")
            found[f"{side.name} {format_}"] = side.load(format_)
            # threads and caches wake up
            side.take(format_, [[1, 2, 3]], 2)
    return found


def _take(case: _Case, processes: Sequence[SideProcess], rounds: int, say: Say) -> _Found:
    generator = random.Random(_SEED)
    noidle = next(side for side in processes if side.name == NOIDLE)
    found = _Found(case)
    for number in range(rounds):
        say(f"{case.name}, round {number + 1} of {rounds}")
        length = _PROMPT_TOKENS // case.sequences
        prompts = [
            [generator.randrange(CONFIG.vocabulary) for _ in range(length)]
            for _ in range(case.sequences)
        ]
        # the first of one round is the last of the next
        order = [side for side in processes if case.format in side.formats]
        for side in order if number % 2 else reversed(order):
            taken = side.take(case.format, prompts, _STEPS)
            found.taken.setdefault(side.name, []).append(taken)
        found.bandwidth.append(noidle.bandwidth())
    return found


def _share_aims(rows: Sequence[Row]) -> Iterator[Aim]:
    for row in rows:
        if (row.side, row.format, row.sequences) == (NOIDLE, Format.INT4, 1):
            what = "decode, int4, 1 sequence: bytes read by bandwidth"
            yield Aim(what=what, found=row.bandwidth_share, unit="", at_least=0.6)
