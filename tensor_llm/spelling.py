"""How a tokenizer spells bytes, and which parts of a tokenizer.json are understood.

Two families: byte-level (GPT-2, Llama 3, Qwen, SmolLM2: each byte is a character of an alphabet)
and SentencePiece-like with byte fallback (Llama 2, Mistral: ▁ is a space, <0x0A> a byte). Owns the
list of components that either may have; knows nothing of encoding.

A file that holds anything else is refused rather than half understood: what is not listed here
could take unbounded time or memory, or spell text in ways that streaming cannot follow."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tokenizers
from tokenizers.models import BPE

SPACE = "▁"
LONGEST_PATTERN = 2000
LONGEST_REPLACEMENT = 16
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")
# a repeated group with a repetition inside can take exponential time
_NESTED = re.compile(r"\)[*+{]|\\[1-9]|\\[gk]<")
_COUNT = re.compile(r"\{\d*,?\d{4,}")
_PARTS = {"Sequence": ("normalizers", "pretokenizers", "processors", "decoders")}
_KNOWN = {
    "normalizer": {"Sequence", "NFC", "NFKC", "Prepend", "Replace"},
    "pre_tokenizer": {"Sequence", "Split", "Digits", "ByteLevel", "Metaspace"},
    "post_processor": {"Sequence", "TemplateProcessing", "ByteLevel"},
    "decoder": {"Sequence", "ByteLevel", "Replace", "ByteFallback", "Fuse", "Strip", "Metaspace"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Spelling:
    """What the decoder of a tokenizer.json says of its tokens."""

    byte_level: bool
    # spaces that do not belong to a text, at its very beginning
    opening_spaces: int = 0
    # all spaces of the first token are such
    opening_token: bool = False

    @classmethod
    def of(cls, inner: tokenizers.Tokenizer) -> "Spelling":
        """
        Raises:
            ValueError: a component is not one of the two families'.
        """
        if not isinstance(inner.model, BPE):
            raise ValueError(f"its model is {type(inner.model).__name__}, not BPE")
        if inner.model.dropout:
            raise ValueError("it drops merges at random")
        found = {role: list(_components(inner, role)) for role in _KNOWN}
        for role, parts in found.items():
            for part in parts:
                _check(role, part)
        decoder = found["decoder"]
        kinds = [part["type"] for part in decoder]
        if kinds == ["ByteLevel"]:
            return cls(byte_level=True)
        if kinds == ["Metaspace"]:
            return cls(byte_level=False, opening_token=decoder[0].get("prepend_scheme") != "never")
        if (
            kinds
            and kinds[0] == "Replace"
            and "ByteLevel" not in kinds
            and "Metaspace" not in kinds
        ):
            return cls(byte_level=False, opening_spaces=_stripped(decoder))
        raise ValueError(f"its decoder is {' '.join(kinds) or 'missing'}")

    def table(self, inner: tokenizers.Tokenizer) -> list[bytes]:
        """The bytes of each token id; none for special tokens and for ids that are not used.

        Raises:
            ValueError: ids are absurdly high or given twice, or a token is not spelt in bytes.
        """
        vocabulary = inner.get_vocab(with_added_tokens=True)
        if not vocabulary or max(vocabulary.values()) > 4 * len(vocabulary) + 1024:
            raise ValueError("its token ids are not dense")
        if len(set(vocabulary.values())) < len(vocabulary):
            raise ValueError("two of its tokens have the same id")
        added = inner.get_added_tokens_decoder()
        table = [b""] * (max(vocabulary.values()) + 1)
        spell = self._byte_level(vocabulary, added) if self.byte_level else _fallback
        for token, index in vocabulary.items():
            if index not in added:
                table[index] = spell(token)
            elif not added[index].special:
                table[index] = _spell_added(token) if self.byte_level else _fallback(token)
        return table

    @staticmethod
    def _byte_level(vocabulary: Mapping[str, int], added: Mapping[int, Any]) -> Any:
        alphabet = byte_alphabet()
        used = set[str]().union(*vocabulary)
        if not used <= alphabet.keys():
            for token, index in vocabulary.items():
                if index not in added and not alphabet.keys() >= set(token):
                    raise ValueError(f"token {token[:40]!r} is not spelt in bytes")
        table = str.maketrans({char: chr(byte) for char, byte in alphabet.items()})
        return lambda token: token.translate(table).encode("latin-1")


def contained(call: Callable[..., Any], *arguments: Any, **named: Any) -> Any:
    """What the package answers.

    Raises:
        ValueError: in place of the package's bare Exception, and of its panics, which are no
            Exception.
    """
    try:
        return call(*arguments, **named)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 -- see above
        raise ValueError(str(error)[:200] or type(error).__name__) from None


def byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself where it prints, else one from U+0100."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printing]
    alphabet = {chr(byte): byte for byte in printing}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(hidden)}


def _fallback(token: str) -> bytes:
    byte = _BYTE.fullmatch(token)
    return bytes([int(byte[1], 16)]) if byte else token.replace(SPACE, " ").encode()


def _spell_added(token: str) -> bytes:
    """As the package's own decoder reads an added token: by the alphabet where that is possible."""
    alphabet = byte_alphabet()
    try:
        return bytes(alphabet[char] for char in token)
    except KeyError:
        return token.encode()


def _components(inner: tokenizers.Tokenizer, role: str) -> Iterator[dict[str, Any]]:
    """The component of that role and the parts it is made of."""
    component = getattr(inner, role)
    if component is not None:
        yield from _flat(json.loads(component.__getstate__()))


def _flat(part: dict[str, Any]) -> Iterator[dict[str, Any]]:
    if part["type"] != "Sequence":
        yield part
        return
    for name in _PARTS["Sequence"]:
        for inner in part.get(name) or ():
            yield from _flat(inner)


def _check(role: str, part: dict[str, Any]) -> None:
    if part["type"] not in _KNOWN[role]:
        raise ValueError(f"{role} {part['type']} is not known; known are {_words(role)}")
    pattern = part.get("pattern") or {}
    regex = pattern.get("Regex")
    if regex is not None and (
        len(regex) > LONGEST_PATTERN or _NESTED.search(regex) or _COUNT.search(regex)
    ):
        raise ValueError(f"{role}: the pattern {regex[:60]!r} could take for ever")
    texts = (part.get("prepend"), part.get("content"), part.get("replacement"))
    if any(text is not None and len(text) > LONGEST_REPLACEMENT for text in texts):
        raise ValueError(f"{role} {part['type']} writes more than {LONGEST_REPLACEMENT} characters")
    single = part.get("single") or ()
    if len(single) > LONGEST_REPLACEMENT or sum("Sequence" in one for one in single) > 1:
        raise ValueError(f"{role} {part['type']} repeats a text")
    if (
        role == "decoder"
        and part["type"] == "Replace"
        and (pattern.get("String") != SPACE or part["content"] != " ")
    ):
        raise ValueError(f"decoder Replace turns {pattern} into {part['content']!r}")


def _words(role: str) -> str:
    return ", ".join(sorted(_KNOWN[role]))


def _stripped(decoder: list[dict[str, Any]]) -> int:
    kinds = [part["type"] for part in decoder]
    strips = [part for part in decoder if part["type"] == "Strip"]
    if not strips:
        return 0
    first, *more = strips
    if more or "Fuse" not in kinds[: kinds.index("Strip")] or first["stop"]:
        raise ValueError("its decoder strips more than the beginning of a text")
    if first["content"] != " ":
        raise ValueError(f"its decoder strips {first['content']!r}")
    return int(first["start"])
