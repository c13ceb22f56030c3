"""Tokenizers of the structure that the families' tokenizer.json files have, small and trained on
the spot."""

import functools
import json

import tokenizers
from tokenizers import AddedToken, Regex, decoders, normalizers, pre_tokenizers, processors
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from tensor_llm.tokenizer import Tokenizer
from tests.unit.tensor_llm.builders import JAPANESE, TEXT

CODE = "def f(x):\n\tif x > 10:\n        return  [x, 'a b']\n\n\n  # 12345 done\r\n"
EMOJI = "👩‍👩‍👧‍👦 🇯🇵 👍🏽 🏳️‍🌈"
CORPUS = [TEXT, JAPANESE, CODE, EMOJI, "The user's 2025 plan isn't what it's said to be. " * 9]
LLAMA3_SPLIT = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2_SPLIT = LLAMA3_SPLIT.replace(r"\p{N}{1,3}", r"\p{N}")
HEADS = ["<|begin_of_text|>", "<|end_of_text|>", "<|start_header_id|>", "<|end_header_id|>"]
LLAMA3_SPECIAL = [*HEADS, "<|eot_id|>", "<|eom_id|>", "<|python_tag|>"]
CHATML = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
QWEN_TAGS = ["<think>", "</think>", "<tool_call>", "</tool_call>"]
SENTENCEPIECE = ["<unk>", "<s>", "</s>"]


def _trained(before) -> dict:
    """The model part of a BPE trained on the corpus."""
    inner = tokenizers.Tokenizer(BPE())
    inner.pre_tokenizer = before
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trainer = BpeTrainer(vocab_size=500, initial_alphabet=alphabet, show_progress=False)
    inner.train_from_iterator(CORPUS, trainer)
    return json.loads(inner.to_str())["model"]


def _byte_level(split, *, special, tags=(), ignore_merges=False, normalizer=None, bos=None):
    before = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(split), "isolated")
            if split
            else pre_tokenizers.Digits(True),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not split),
        ]
    )
    model = _trained(before)
    merges = [tuple(merge) for merge in model["merges"]]
    inner = tokenizers.Tokenizer(BPE(model["vocab"], merges, ignore_merges=ignore_merges))
    inner.normalizer, inner.pre_tokenizer = normalizer, before
    inner.decoder = decoders.ByteLevel()
    inner.add_special_tokens([AddedToken(one, special=True, normalized=False) for one in special])
    inner.add_tokens([AddedToken(one, normalized=False) for one in tags])
    inner.post_processor = processors.ByteLevel(trim_offsets=not bos)
    if bos:
        first = processors.TemplateProcessing(
            single=f"{bos} $A",
            pair=f"{bos} $A {bos}:1 $B:1",
            special_tokens=[(bos, inner.token_to_id(bos))],
        )
        inner.post_processor = processors.Sequence([inner.post_processor, first])
    return inner


def _sentencepiece(*, metaspace: str | None):
    """`metaspace`: the prepend scheme of a pre-tokenizer; None for the older form, a normaliser."""
    learnt = _trained(pre_tokenizers.Metaspace(prepend_scheme="always"))
    names = [*SENTENCEPIECE, *(f"<0x{byte:02X}>" for byte in range(256))]
    vocabulary = {name: index for index, name in enumerate(names)}
    for token in sorted(learnt["vocab"], key=learnt["vocab"].get):
        vocabulary.setdefault(token, len(vocabulary))
    merges = [tuple(merge) for merge in learnt["merges"]]
    model = BPE(vocabulary, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    inner = tokenizers.Tokenizer(model)
    if metaspace:
        inner.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme=metaspace, split=False)
    else:
        inner.normalizer = normalizers.Sequence(
            [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
        )
    inner.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    named = [AddedToken(one, special=True, normalized=False) for one in SENTENCEPIECE]
    inner.add_special_tokens(named)
    inner.post_processor = processors.TemplateProcessing(
        single="<s> $A", pair="<s> $A <s>:1 $B:1", special_tokens=[("<s>", 1)]
    )
    return inner


def _mistral():
    inner = _sentencepiece(metaspace="first")
    tags = [AddedToken(one, special=True, normalized=False) for one in ("[INST]", "[/INST]")]
    inner.add_special_tokens(tags)
    return inner


_MAKE = {
    "llama2": lambda: _sentencepiece(metaspace=None),
    "mistral": _mistral,
    "llama3": lambda: _byte_level(
        LLAMA3_SPLIT, special=LLAMA3_SPECIAL, ignore_merges=True, bos="<|begin_of_text|>"
    ),
    "qwen2": lambda: _byte_level(
        QWEN2_SPLIT, special=CHATML, tags=QWEN_TAGS, normalizer=normalizers.NFC()
    ),
    "smollm2": lambda: _byte_level(None, special=[*CHATML, "<repo_name>", "<jupyter_text>"]),
}
FAMILIES = list(_MAKE)
FALLBACK = ("llama2", "mistral")


@functools.cache
def family_json(family: str) -> str:
    """The text of the family's tokenizer.json."""
    return _MAKE[family]().to_str()


@functools.cache
def family_tokenizer(family: str) -> Tokenizer:
    return Tokenizer(tokenizers.Tokenizer.from_str(family_json(family)))
