"""How long a short prompt waits for its first token while a long one is being read beside it.

`python -m tests.bench.cpu.waiting FOLDER THREADS FORMAT` prints the figures as JSON."""

import random
import sys
import time
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tests.bench.cpu.shape import CONFIG, Format
from tests.bench.figures import Aim, Spread, differences, ratios

_LONG, _SHORT, _ROUNDS = 4000, 16, 5


class WaitingFigures(BaseModel):
    model_config = ConfigDict(frozen=True)

    format: Format
    long_tokens: int
    short_tokens: int
    chunk_tokens: int
    # of the short prompt's first token, alone
    idle_s: Spread
    # the same, asked for just as a part of the long prompt begins to be read
    beside_s: Spread
    # of the steps that read a whole part of the long prompt meanwhile, the longest
    chunk_s: Spread
    long_tokens_per_s: Spread
    aims: tuple[Aim, ...]


def measure_waiting(folder: Path, threads: int, format_: Format) -> WaitingFigures:
    import torch

    from tensor_llm.checkpoint import load_folder
    from tensor_llm.quantization import WeightFormat
    from tensor_llm.serving.opening import CHUNK_TOKENS, open_core

    torch.set_num_threads(threads)
    packed = None if format_ is Format.BF16 else WeightFormat(format_)
    core = open_core(load_folder(folder, format=packed), rows=4, kv_tokens=CONFIG.context)
    generator = random.Random(1)
    _idle_s(core, generator)
    idle, beside, chunk, rate = [], [], [], []
    for number in range(_ROUNDS):
        idle.append(_idle_s(core, generator))
        waited_s, chunk_s, long_s = _beside_s(core, generator, 1 + 2 * number)
        beside.append(waited_s)
        chunk.append(chunk_s)
        rate.append(_LONG / long_s)
    above = differences(beside, idle)
    return WaitingFigures(
        format=format_,
        long_tokens=_LONG,
        short_tokens=_SHORT,
        chunk_tokens=CHUNK_TOKENS,
        idle_s=Spread.of(idle),
        beside_s=Spread.of(beside),
        chunk_s=Spread.of(chunk),
        long_tokens_per_s=Spread.of(rate),
        aims=(
            Aim(
                what="first token beside a long prompt: above idle, by a chunk's time",
                found=ratios(above.rounds, chunk),
                unit="",
                at_most=1.0,
            ),
        ),
    )


def _add(core, generator, count):
    from tensor_llm.serving.request import Request

    tokens = tuple(generator.randrange(CONFIG.vocabulary) for _ in range(count))
    return core.add(Request(tokens=tokens, max_tokens=1, reuse=False))


def _idle_s(core, generator) -> float:
    began_s = time.perf_counter()
    _add(core, generator, _SHORT)
    while core.busy:
        core.step()
    return time.perf_counter() - began_s


def _beside_s(core, generator, before: int) -> tuple[float, float, float]:
    """The wait of a short prompt that comes at the worst moment, after `before` steps of the
    long one: it is added when the step that was beginning then has ended, and the clock has run
    since. Also the longest step of the long one so far, and its time in all."""
    began_s = time.perf_counter()
    long = _add(core, generator, _LONG)
    steps_s = [_step_s(core) for _ in range(before)]
    came_s = time.perf_counter()
    steps_s.append(_step_s(core))
    short = _add(core, generator, _SHORT)
    while short.first_token_s is None:
        core.step()
    waited_s = time.perf_counter() - came_s
    steps_s.append(_step_s(core))
    while long.first_token_s is None:
        core.step()
    return waited_s, max(steps_s[-3:]), time.perf_counter() - began_s


def _step_s(core) -> float:
    began_s = time.perf_counter()
    core.step()
    return time.perf_counter() - began_s


if __name__ == "__main__":
    figures = measure_waiting(Path(sys.argv[1]), int(sys.argv[2]), Format(sys.argv[3]))
    print(figures.model_dump_json())
