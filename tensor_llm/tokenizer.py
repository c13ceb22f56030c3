"""Text to tokens and back: byte-level byte-pair encoding (Sennrich et al. 2016; over bytes as
in GPT-2), trained and run by the `tokenizers` package.

Owns the vocabulary and the bytes behind each token. Knows nothing of models or streams."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel
from tokenizers.trainers import BpeTrainer

from noidle.errors import CheckpointError

END = "<|end|>"
"""The token between documents, and after an answer."""
SMALLEST_VOCABULARY = 257
"""256 bytes and `END`."""


class Tokenizer:
    """Any text survives `decode(encode(text))`, for every character is spelt in bytes if need
    be. Text never becomes a special token, whatever it says."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        inner.encode_special_tokens = True
        self._inner = inner
        self._bytes = _token_bytes(inner)
        self.eos_token: int | None = inner.token_to_id(END)

    @classmethod
    def train(cls, texts: Iterable[str], vocabulary: int) -> "Tokenizer":
        """Learns up to `vocabulary` tokens; a short text may not hold that many."""
        if vocabulary < SMALLEST_VOCABULARY:
            allowed = f"{SMALLEST_VOCABULARY} or more"
            raise ValueError(f"vocabulary = {vocabulary}: allowed is {allowed}")
        inner = tokenizers.Tokenizer(BPE())
        inner.pre_tokenizer = ByteLevel(add_prefix_space=False, use_regex=True)
        inner.decoder = ByteLevelDecoder()
        trainer = BpeTrainer(
            vocab_size=vocabulary,
            special_tokens=[END],
            initial_alphabet=sorted(ByteLevel.alphabet()),
            show_progress=False,
        )
        inner.train_from_iterator(texts, trainer)
        return cls(inner)

    @classmethod
    def load(cls, path: Path) -> "Tokenizer":
        """
        Raises:
            CheckpointError: the file is missing or is no byte-level tokenizer.
        """
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError.of(path, f"cannot be read: {error}") from None
        try:
            return cls(_parse(text))
        except ValueError as error:
            raise CheckpointError.of(path, f"is no byte-level tokenizer: {error}") from None

    def to_json(self) -> str:
        return str(self._inner.to_str(pretty=False))

    @property
    def vocabulary(self) -> int:
        """One more than the highest token id."""
        return len(self._bytes)

    def encode(self, text: str) -> list[int]:
        return list(self._inner.encode(text).ids)

    def decode(self, tokens: Iterable[int]) -> str:
        """The text of the tokens; bytes that are no UTF-8 show as U+FFFD."""
        return b"".join(map(self.token_bytes, tokens)).decode(errors="replace")

    def token_bytes(self, token: int) -> bytes:
        """The token's share of the text in UTF-8, maybe half a character; none for a special
        token, nor for an id above the vocabulary (a model's head may be padded)."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def bytes_per_token(self, text: str) -> float:
        """Mean UTF-8 bytes a token over this text."""
        return len(text.encode()) / max(1, len(self.encode(text)))


def _parse(text: str) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(text)
    except Exception as error:  # noqa: BLE001 -- the package raises bare Exception
        raise ValueError(str(error)[:200]) from None


def _token_bytes(inner: tokenizers.Tokenizer) -> list[bytes]:
    """The bytes of each token id.

    Raises:
        ValueError: the ids are absurdly high, or a token is not spelt in the byte alphabet.
    """
    spelling: dict[str, int] = inner.get_vocab(with_added_tokens=True)
    if not spelling or max(spelling.values()) > 4 * len(spelling) + 1024:
        raise ValueError("its token ids are not dense")
    added: dict[int, Any] = inner.get_added_tokens_decoder()
    alphabet = _byte_alphabet()
    table = [b""] * (max(spelling.values()) + 1)
    for token, index in spelling.items():
        if index in added:
            table[index] = b"" if added[index].special else token.encode()
            continue
        try:
            table[index] = bytes(alphabet[character] for character in token)
        except KeyError:
            raise ValueError(f"token {token[:40]!r} is not spelt in bytes") from None
    return table


def _byte_alphabet() -> dict[str, int]:
    """The character that stands for each byte: itself where it prints, else one from U+0100."""
    printing = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    hidden = [byte for byte in range(256) if byte not in printing]
    alphabet = {chr(byte): byte for byte in printing}
    return alphabet | {chr(256 + index): byte for index, byte in enumerate(hidden)}
