"""The model that all sides run: random weights of a usual shape, as transformers users have them.

`python -m tests.bench.cpu.shape FOLDER` writes it; in a process of its own, for float32 weights
are made on the way."""

import json
import sys
from enum import StrEnum
from pathlib import Path

from tensor_llm.config import ModelConfig

CONFIG = ModelConfig(
    layers=24,
    hidden=1024,
    heads=16,
    kv_heads=8,
    head_size=64,
    mlp=2816,
    vocabulary=32_000,
    context=8192,
    tied_head=False,
    family="llama",
)
"""0.35 billion parameters."""
_SEED = 1
_TEXTS = ("README.md", "ARCHITECTURE.md", "LICENSE")
_ROOT = Path(__file__).resolve().parents[3]


class Format(StrEnum):
    """How weights are kept; llama.cpp's names in comments."""

    BF16 = "bf16"  # BF16
    INT8 = "int8"  # Q8_0
    INT4 = "int4"  # Q4_0


def write_model(folder: Path) -> None:
    import torch

    from tensor_llm.families.config_file import write_config_file
    from tensor_llm.families.names import their_name
    from tensor_llm.model import new_decoder
    from tensor_llm.tokenizer import Tokenizer
    from tensor_llm.weights import write_tensors

    decoder = new_decoder(CONFIG, _SEED).to(torch.bfloat16)
    tensors = {their_name(name): part.data for name, part in decoder.named_parameters()}
    write_tensors(tensors, folder / "model.safetensors")
    config = write_config_file(CONFIG) | {"torch_dtype": "bfloat16"}
    (folder / "config.json").write_text(json.dumps(config))
    texts = [(_ROOT / name).read_text(encoding="utf-8") for name in _TEXTS]
    tokenizer = Tokenizer.train(texts, 1024)
    (folder / "tokenizer.json").write_text(tokenizer.to_json(), encoding="utf-8")


if __name__ == "__main__":
    write_model(Path(sys.argv[1]))
