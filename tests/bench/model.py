"""A model for the bench: random weights, written through the checkpoint store like any other.

A child of the bench, `python -m tests.bench.model DATA`: nobody who is measured has made it."""

import sys
from pathlib import Path

from tensor_llm.config import ModelConfig

MODEL = "bench"
CONFIG = ModelConfig(
    layers=12,
    hidden=768,
    heads=12,
    kv_heads=4,
    head_size=64,
    mlp=2048,
    vocabulary=32_768,
    context=1024,
)
"""100.7 million parameters."""
_SEED = 1
_TOKENS = 2048
_TEXTS = ("README.md", "ARCHITECTURE.md", "LICENSE")
_ROOT = Path(__file__).resolve().parents[2]


def make_model(data: Path) -> None:
    from tensor_llm.checkpoint import save_model
    from tensor_llm.model import new_decoder
    from tensor_llm.store import ModelStore, revision_name
    from tensor_llm.tokenizer import Tokenizer

    texts = [(_ROOT / name).read_text(encoding="utf-8") for name in _TEXTS]
    tokenizer = Tokenizer.train(texts, _TOKENS)
    decoder = new_decoder(CONFIG, _SEED)
    # as good as never the likeliest: answers are as long as they are asked for
    decoder.embedding.weight.data[tokenizer.eos_token] = 0
    store, revision = ModelStore(data), revision_name(0, "00000000")
    save_model(
        store,
        MODEL,
        revision,
        model=decoder,
        tokenizer=tokenizer,
        step=0,
        bytes_per_token=tokenizer.bytes_per_token(texts[0]),
    )
    store.set_current(MODEL, revision)


if __name__ == "__main__":
    make_model(Path(sys.argv[1]))
