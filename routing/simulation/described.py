"""A cluster as a TOML file describes it: its pools and their rates. Owns the file's fields and
what may be in them; knows nothing of time."""

import math
import tomllib
from collections import Counter
from collections.abc import Iterator
from enum import StrEnum
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from noidle.errors import ConfigError
from noidle.jobs import EngineName
from noidle.snapshot import ModelInfo, PoolSnapshot, PoolState, Rates

SHIPPED = Path(__file__).parent / "clusters"
MODEL = "trace"
"""All requests of a trace ask for this one model."""
LESSON = "lesson"
"""The model of the training behind a trace: small, so that it is loaded at once."""
STORAGE = "described"
BYTES_PER_TOKEN = 4.0

# what is larger is a slip of the pen, and would have a replay run for ever
Positive = Annotated[float, Field(gt=0, le=1e9, allow_inf_nan=False)]
NotNegative = Annotated[float, Field(ge=0, le=1e9, allow_inf_nan=False)]
Count = Annotated[int, Field(ge=1)]


class Fit(StrEnum):
    """What becomes of a prompt that is longer than the context."""

    CLIP = "clip"  # it is cut
    SCALE = "scale"  # all prompts shrink by one factor, until 99 in 100 fit; the rest is cut


class _Table(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DescribedPool(_Table):
    """One pool; routing.simulation.pool tells how its rates work together."""

    # ENGINE@HOST or ENGINE.N@HOST
    pool: Annotated[str, Field(pattern=r"^(cpu|hybrid|cuda|gpu)(\.\d+)?@[A-Za-z0-9.-]+$")]
    # hosts that are alike: HOST-001 and so on, where there are several
    count: Annotated[int, Field(ge=1, le=10_000)] = 1
    # where the figures come from
    reason: Annotated[str, Field(min_length=1)]
    slots: Count
    kv_tokens: Count
    prefill_tokens_per_s: Positive
    # a step takes the longer of step_s and of reading its part of a prompt, and
    # step_s_per_sequence for each sequence that decodes
    step_s: Positive
    step_s_per_sequence: NotNegative
    # prompt tokens read in one step at most
    chunk_tokens: Count = 1024
    # seconds until the model is in memory, paid by the first job; 0: it is there
    load_s: NotNegative = 0.0
    # absent: it trains nothing
    train_tokens_per_s: Positive | None = None
    # a part of an optimiser step, which is not interrupted
    train_part_s: Annotated[float, Field(ge=0.001, le=3600)] = 0.1
    # KV of prompts kept for those that begin alike: all room that no run uses, or at most so much
    prefix_cache_tokens: Annotated[int, Field(ge=0)] | None = None

    def each(self) -> Iterator[Self]:
        """The pools that the table stands for."""
        if self.count == 1:
            yield self
            return
        width = max(len(str(self.count)), 3)
        for number in range(1, self.count + 1):
            yield self.model_copy(update={"pool": f"{self.pool}-{number:0{width}}", "count": 1})

    # not cached, as a copy with other fields would keep it
    @property
    def kind(self) -> tuple[Any, ...]:
        """Equal for pools that differ in nothing but their names."""
        fields = self.model_dump(exclude={"pool", "reason", "count"})
        return (self.engine, *fields.values())

    @cached_property
    def engine(self) -> EngineName:
        return EngineName(self.pool.partition("@")[0].partition(".")[0])

    @property
    def cache_tokens(self) -> int:
        """Tokens of prompts that it keeps while nothing runs."""
        if self.prefix_cache_tokens is None:
            return self.kv_tokens
        return min(self.prefix_cache_tokens, self.kv_tokens)

    def step_s_of(self, part_s: float, decoding: int) -> float:
        """Seconds of a step that reads for `part_s` and makes a token for so many sequences: one
        pass over the weights does both."""
        if not decoding:
            return part_s
        return max(part_s, self.step_s) + self.step_s_per_sequence * decoding

    def work_s(self, prompt: float, output: float, batch: int) -> float:
        """Seconds a run takes beside `batch - 1` others, when only its own prompt is read."""
        whole = math.ceil(prompt / self.chunk_tokens) - 1
        part_s = self.chunk_tokens / self.prefill_tokens_per_s
        last_s = prompt / self.prefill_tokens_per_s - whole * part_s
        read_s = whole * self.step_s_of(part_s, batch - 1)
        # the last part makes the first token
        return read_s + self.step_s_of(last_s, batch) + (output - 1) * self.step_s_of(0.0, batch)

    def reading_s(self, prompt: float, output: float) -> float:
        """Seconds of the whole pool that no other run's prompt or token can have."""
        return prompt / self.prefill_tokens_per_s + output * self.step_s_per_sequence

    def decoding_s(self, output: float) -> float:
        """Seconds of the whole pool that its tokens cost in full batches."""
        return output * (self.step_s / self.slots + self.step_s_per_sequence)

    def share_s(self, prompt: float, output: float) -> float:
        """Seconds of the whole pool that a run costs at least in a full batch."""
        return max(self.reading_s(prompt, output), self.decoding_s(output))

    def snapshot(self, weight_bytes: int, *, loaded: bool) -> PoolSnapshot:
        """What such a pool would publish."""
        name, _, host = self.pool.partition("@")
        trains = self.train_tokens_per_s is not None
        return PoolSnapshot(
            pool=self.pool,
            engine=self.engine,
            host=host,
            device=name,
            kinds=("generate", "train") if trains else ("generate",),
            slots=self.slots,
            state=PoolState.READY,
            kv_tokens_total=self.kv_tokens,
            prefix_cache_tokens=self.cache_tokens or None,
            models=(MODEL, LESSON) if trains else (MODEL,),
            loaded=(MODEL,) if loaded else (),
            storage=STORAGE,
            rates=Rates(
                prefill_tokens_per_s=self.prefill_tokens_per_s,
                step_s=self.step_s,
                chunk_tokens=self.chunk_tokens,
                step_s_per_sequence=self.step_s_per_sequence,
                load_bytes_per_s=weight_bytes / self.load_s if self.load_s else None,
                train_tokens_per_s=self.train_tokens_per_s,
            ),
        )


class Described(_Table):
    """A whole cluster."""

    # tokens of prompt and answer together
    context: Annotated[int, Field(ge=16)]
    fit: Fit = Fit.SCALE
    weight_bytes: Count = 3_000_000_000
    pools: Annotated[tuple[DescribedPool, ...], Field(min_length=1)]

    @property
    def kinds(self) -> list[tuple[DescribedPool, int]]:
        """One pool of each kind, and how many there are."""
        first: dict[tuple[Any, ...], DescribedPool] = {}
        counts = Counter(first.setdefault(pool.kind, pool).pool for pool in self.pools)
        return [(pool, counts[pool.pool]) for pool in first.values()]

    @property
    def trains(self) -> bool:
        """Whether any of its pools does."""
        return any(pool.train_tokens_per_s for pool in self.pools)

    @property
    def models(self) -> dict[str, ModelInfo]:
        served = ModelInfo(
            name=MODEL,
            revision="described",
            storage=STORAGE,
            context=self.context,
            weight_bytes=self.weight_bytes,
            bytes_per_token=BYTES_PER_TOKEN,
        )
        return {MODEL: served, LESSON: ModelInfo(name=LESSON)}


def shipped() -> list[str]:
    """The names of the descriptions that come with noidle."""
    return sorted(path.stem for path in SHIPPED.glob("*.toml"))


def read_cluster(name_or_file: str) -> Described:
    """A shipped description by name, or a user's file.

    Raises:
        ConfigError: there is none, or a field is wrong.
    """
    path = SHIPPED / f"{name_or_file}.toml" if name_or_file in shipped() else Path(name_or_file)
    try:
        data = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        names = ", ".join(shipped())
        raise ConfigError(
            f"--cluster {name_or_file}: allowed are {names}, or a TOML file ({error.strerror})"
        ) from error
    except ValueError as error:
        raise ConfigError(f"--cluster {path} is no TOML: {error}") from error
    try:
        described = Described.model_validate(data)
    except ValidationError as error:
        first = error.errors()[0]
        field = ".".join(map(str, first["loc"]))
        if first["type"] == "missing":
            raise ConfigError(f"--cluster {path}: {field} is missing") from error
        shown = first["input"] if isinstance(first["input"], str | int | float) else "…"
        raise ConfigError(f"--cluster {path}: {field} = {shown!r}: {first['msg']}") from error
    pools = tuple(one for pool in described.pools for one in pool.each())
    described = described.model_copy(update={"pools": pools})
    _check(path, described)
    return described


def _check(path: Path, described: Described) -> None:
    names = Counter(pool.pool for pool in described.pools)
    twice = next((name for name, count in names.items() if count > 1), None)
    if twice:
        raise ConfigError(f"--cluster {path}: pool {twice} is described twice")
    largest = max(pool.kv_tokens for pool in described.pools)
    if largest < described.context:
        raise ConfigError(
            f"--cluster {path}: context = {described.context}: allowed is at most {largest}, "
            "the largest kv_tokens of its pools"
        )
