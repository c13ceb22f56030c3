"""What memory loading and serving take at most, and whether jobs leave any behind.

`python -m tests.bench.cpu.memory FOLDER THREADS FORMAT` prints the figures as JSON; a process of
its own, for the peak is the process's. Working set: resident pages, those of mapped files too."""

import random
import sys
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from tests.bench.cpu.shape import CONFIG, Format

_MIB = 1 << 20
ALLOWED_BYTES = 300 * _MIB
ALLOWED_GROWTH_BYTES = 16 * _MIB
_JOBS, _SETTLED, _KV_TOKENS, _ROWS = 2000, 500, 4096, 16


class MemoryFigures(BaseModel):
    model_config = ConfigDict(frozen=True)

    format: Format
    jobs: int
    # working set with torch alone
    bare_bytes: int
    # by the model's parts, as they lie
    weight_bytes: int
    cache_bytes: int
    # the process's largest working set until the last job ended
    peak_bytes: int
    # between the 500th job and the last
    growth_bytes: int

    @property
    def above_bytes(self) -> int:
        """What the peak has beyond torch, weights and cache."""
        return self.peak_bytes - self.bare_bytes - self.weight_bytes - self.cache_bytes


def measure_memory(folder: Path, threads: int, format_: Format) -> MemoryFigures:
    import torch

    torch.set_num_threads(threads)
    # what torch allocates for itself the first time it computes counts as torch
    torch.randn(64, 64) @ torch.randn(64, 64)
    bare = _field_bytes("VmRSS")

    from tensor_llm.checkpoint import load_folder
    from tensor_llm.quantization import WeightFormat
    from tensor_llm.serving.opening import open_core
    from tests.bench.cpu.noidle_side import step_bytes

    packed = None if format_ is Format.BF16 else WeightFormat(format_)
    loaded = load_folder(folder, format=packed)
    core = open_core(loaded, rows=_ROWS, kv_tokens=_KV_TOKENS)
    embedding = 2 * CONFIG.vocabulary * CONFIG.hidden
    _serve(core, _SETTLED)
    settled = _field_bytes("VmRSS")
    _serve(core, _JOBS - _SETTLED)
    return MemoryFigures(
        format=format_,
        jobs=_JOBS,
        bare_bytes=bare,
        weight_bytes=step_bytes(loaded.model) + embedding,
        cache_bytes=core.executor.cache.bytes,
        peak_bytes=_field_bytes("VmHWM"),
        growth_bytes=_field_bytes("VmRSS") - settled,
    )


def _serve(core, jobs: int) -> None:
    """Each with another prompt, so that blocks are remembered, found and forgotten."""
    from tensor_llm.serving.request import Request

    generator = random.Random(1)
    for number in range(jobs):
        length = 600 if number % 100 == 0 else generator.randrange(2, 9)
        tokens = tuple(generator.randrange(CONFIG.vocabulary) for _ in range(length))
        core.add(Request(tokens=tokens, max_tokens=2))
        while len(core.waiting) > 2 * _ROWS:
            core.step()
    while core.busy:
        core.step()


def _field_bytes(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError(f"/proc/self/status has no {name}")


if __name__ == "__main__":
    figures = measure_memory(Path(sys.argv[1]), int(sys.argv[2]), Format(sys.argv[3]))
    print(figures.model_dump_json())
