"""Small models, tokenizers and texts for the tests of this package."""

from functools import cache

import torch

from tensor_llm.config import ModelConfig
from tensor_llm.model import Decoder, new_decoder
from tensor_llm.tokenizer import Tokenizer

SENTENCE = "the router holds a job until some pool has room for it and then leases one slot"
WORDS = SENTENCE.split()
TEXT = "".join(
    " ".join(WORDS[(line * 7 + word * 3) % len(WORDS)] for word in range(9)) + ".\n"
    for line in range(120)
)
JAPANESE = "すべての計算資源を遊ばせない。絵文字👩‍🚀も🇯🇵も壊れない。\n"


def make_config(**changes: object) -> ModelConfig:
    sizes = {
        "layers": 2,
        "hidden": 32,
        "heads": 4,
        "kv_heads": 2,
        "head_size": 8,
        "mlp": 48,
        "vocabulary": 61,
        "context": 64,
    }
    return ModelConfig(**(sizes | changes))


def make_model(seed: int = 0, **changes: object) -> Decoder:
    return new_decoder(make_config(**changes), seed).eval()


@cache
def make_tokenizer(vocabulary: int = 300) -> Tokenizer:
    return Tokenizer.train([TEXT, JAPANESE * 3], vocabulary)


def random_tokens(count: int, seed: int = 0, vocabulary: int = 61) -> list[int]:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(vocabulary, (count,), generator=generator).tolist()
