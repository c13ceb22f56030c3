"""noidle's cpu engine from the serving core down, as a pool and `noidle run` open it."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch

from tensor_llm.checkpoint import load_folder
from tensor_llm.kernels.library import best_kernels
from tensor_llm.quantization import WeightFormat
from tensor_llm.serving.core import Core
from tensor_llm.serving.opening import open_core
from tensor_llm.serving.request import Request
from tests.bench.cpu.shape import Format
from tests.bench.cpu.taking import MOST_SEQUENCES, MOST_TOKENS, Taken

VERSION = f"this checkout, torch {torch.__version__}"
_READ_BYTES, _READS = 256 << 20, 5


class NoidleSide:
    formats = tuple(Format)

    def __init__(self, folder: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._folder = folder
        self._cores: dict[Format, Core] = {}
        self._memory = torch.ones(_READ_BYTES, dtype=torch.uint8)

    def load(self, format_: Format) -> int:
        packed = None if format_ is Format.BF16 else WeightFormat(format_)
        loaded = load_folder(self._folder, format=packed)
        self._cores[format_] = open_core(
            loaded, device="cpu", rows=MOST_SEQUENCES, kv_tokens=MOST_TOKENS
        )
        return step_bytes(loaded.model)

    def take(self, format_: Format, prompts: Sequence[Sequence[int]], steps: int) -> Taken:
        core = self._cores[format_]
        began_s = time.perf_counter()
        # nothing is remembered: the next round shall read its prompts again
        asked = [
            core.add(Request(tokens=tuple(prompt), max_tokens=steps + 1, reuse=False))
            for prompt in prompts
        ]
        while any(one.first_token_s is None for one in asked):
            core.step()
        read_s = time.perf_counter()
        while core.busy:
            core.step()
        ended_s = time.perf_counter()
        first = tuple(one.tokens[len(prompt)] for one, prompt in zip(asked, prompts, strict=True))
        return Taken(prefill_s=read_s - began_s, decode_s=ended_s - read_s, first_tokens=first)

    def bandwidth(self) -> float:
        """Bytes a second that the same threads read from memory, the best of a few times."""
        kernels = best_kernels()
        if kernels is None:
            raise RuntimeError("no C++ kernels: install g++ and ninja")
        spent_s = []
        for _ in range(_READS):
            began_s = time.perf_counter()
            kernels.read(self._memory)
            spent_s.append(time.perf_counter() - began_s)
        return _READ_BYTES / min(spent_s)


def step_bytes(model: torch.nn.Module) -> int:
    """Of all weights but the embedding, packed ones as they lie."""
    packed = [part.packed for part in model.modules() if hasattr(part, "packed")]
    plain = [
        parameter
        for name, parameter in model.named_parameters()
        if not name.startswith("embedding.")
    ]
    found = sum(part.numel() * part.element_size() for part in plain)
    return found + sum(one.bytes for one in packed)
