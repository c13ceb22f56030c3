"""llama.cpp through its C interface: a batch of tokens of several sequences at a time.

With the settings that its own tools have by default, but for threads and the sizes asked for."""

import ctypes
import time
from collections.abc import Sequence
from pathlib import Path

import llama_cpp
import numpy as np

from tests.bench.cpu.gguf_file import gguf_path
from tests.bench.cpu.shape import CONFIG, Format
from tests.bench.cpu.taking import MOST_SEQUENCES, MOST_TOKENS, Taken

VERSION = f"llama-cpp-python {llama_cpp.__version__}"


@llama_cpp.llama_log_callback
def _silent(level, text, data):
    pass


def be_quiet() -> None:
    llama_cpp.llama_log_set(_silent, ctypes.c_void_p(0))


class LlamaSide:
    formats = tuple(Format)

    def __init__(self, folder: Path, threads: int) -> None:
        be_quiet()
        llama_cpp.llama_backend_init()
        self._folder, self._threads = folder, threads
        self._models = {}
        self._contexts = {}

    def load(self, format_: Format) -> int:
        path = str(gguf_path(self._folder, format_)).encode()
        model = llama_cpp.llama_model_load_from_file(path, llama_cpp.llama_model_default_params())
        settings = llama_cpp.llama_context_default_params()
        settings.n_ctx = settings.n_batch = MOST_TOKENS
        settings.n_seq_max = MOST_SEQUENCES
        settings.n_threads = settings.n_threads_batch = self._threads
        # one cache for all, so that a sequence may have any share of it
        settings.kv_unified = True
        context = llama_cpp.llama_init_from_model(model, settings)
        if not model or not context:
            raise RuntimeError(f"llama.cpp cannot load {path.decode()}")
        self._models[format_], self._contexts[format_] = model, context
        return llama_cpp.llama_model_size(model) - _embedding_bytes(format_)

    def take(self, format_: Format, prompts: Sequence[Sequence[int]], steps: int) -> Taken:
        context = self._contexts[format_]
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(context), True)
        rows = [
            (token, place, number, place == len(prompt) - 1)
            for number, prompt in enumerate(prompts)
            for place, token in enumerate(prompt)
        ]
        began_s = time.perf_counter()
        newest = first = _decode(context, rows)
        read_s = time.perf_counter()
        places = [len(prompt) for prompt in prompts]
        for step in range(steps):
            rows = [
                (token, places[number] + step, number, True) for number, token in enumerate(newest)
            ]
            newest = _decode(context, rows)
        ended_s = time.perf_counter()
        return Taken(
            prefill_s=read_s - began_s, decode_s=ended_s - read_s, first_tokens=tuple(first)
        )


def _decode(context, rows) -> list[int]:
    """Reads rows of token, place, sequence, wanted; the likeliest token behind each wanted."""
    batch = llama_cpp.llama_batch_init(len(rows), 0, 1)
    batch.n_tokens = len(rows)
    for index, (token, place, sequence, wanted) in enumerate(rows):
        batch.token[index], batch.pos[index] = token, place
        batch.n_seq_id[index] = 1
        batch.seq_id[index][0] = sequence
        batch.logits[index] = wanted
    failed = llama_cpp.llama_decode(context, batch)
    llama_cpp.llama_batch_free(batch)
    if failed:
        raise RuntimeError(f"llama.cpp cannot decode: {failed}")
    wanted = [index for index, row in enumerate(rows) if row[3]]
    return [_likeliest(llama_cpp.llama_get_logits_ith(context, index)) for index in wanted]


def _likeliest(logits) -> int:
    return int(np.ctypeslib.as_array(logits, shape=(CONFIG.vocabulary,)).argmax())


def _embedding_bytes(format_: Format) -> int:
    """Of which a step reads a few rows only."""
    bits = {Format.BF16: 16, Format.INT8: 8.5, Format.INT4: 4.5}
    return int(CONFIG.vocabulary * CONFIG.hidden * bits[format_] / 8)
