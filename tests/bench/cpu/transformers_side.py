"""transformers as most people run it: eager, bfloat16, its own cache."""

import time
from collections.abc import Sequence
from pathlib import Path

import torch
import transformers

from tests.bench.cpu.noidle_side import step_bytes
from tests.bench.cpu.shape import CONFIG, Format
from tests.bench.cpu.taking import Taken

VERSION = f"transformers {transformers.__version__}, torch {torch.__version__}"


class TransformersSide:
    formats = (Format.BF16,)

    def __init__(self, folder: Path, threads: int) -> None:
        torch.set_num_threads(threads)
        self._folder = folder
        self._model: torch.nn.Module | None = None

    def load(self, format_: Format) -> int:
        transformers.utils.logging.set_verbosity_error()
        transformers.utils.logging.disable_progress_bar()
        model = transformers.AutoModelForCausalLM.from_pretrained(
            self._folder, dtype=torch.bfloat16, local_files_only=True
        )
        self._model = model.eval()
        embedding = CONFIG.vocabulary * CONFIG.hidden * 2
        return step_bytes(model) - embedding

    @torch.inference_mode()
    def take(self, format_: Format, prompts: Sequence[Sequence[int]], steps: int) -> Taken:
        assert self._model is not None
        began_s = time.perf_counter()
        answer = self._model(torch.tensor(prompts), use_cache=True, logits_to_keep=1)
        token_B1 = first_B1 = answer.logits[:, -1:].argmax(-1)
        read_s = time.perf_counter()
        for _ in range(steps):
            answer = self._model(token_B1, past_key_values=answer.past_key_values, use_cache=True)
            token_B1 = answer.logits[:, -1:].argmax(-1)
        ended_s = time.perf_counter()
        return Taken(
            prefill_s=read_s - began_s,
            decode_s=ended_s - read_s,
            first_tokens=tuple(first_B1[:, 0].tolist()),
        )
