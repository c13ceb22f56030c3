"""Text to tokens and back: byte-pair encoding (Sennrich et al. 2016), over bytes as in GPT-2 or
with bytes as a fallback as in SentencePiece; trained and run by the `tokenizers` package.

Owns the vocabulary, the bytes behind each token, and the rule that text is never a special token.
Knows nothing of models, streams or chat templates."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Metaspace
from tokenizers.trainers import BpeTrainer

from noidle.errors import CheckpointError
from tensor_llm.marks import Marks, Span
from tensor_llm.spelling import Spelling, contained

END = "<|end|>"
"""The token between documents, and after an answer."""
SMALLEST_VOCABULARY = 257
"""256 bytes and `END`."""
LARGEST_FILE_BYTES = 128 << 20
# where no config says which, in the order in which families are asked
_ENDS = (END, "<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "</s>")


class Tokenizer:
    """Any text survives `decode(encode(text))` up to the tokenizer's own normalisation, for every
    character is spelt in bytes if need be. Text never becomes a special token, whatever it says.

    Safe between threads."""

    def __init__(self, inner: tokenizers.Tokenizer) -> None:
        """
        Raises:
            ValueError: it is not of a family that is known here, or turns text into special
                tokens.
        """
        # the package would start a thread for each core to encode a list of texts
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
        inner.no_padding()
        inner.no_truncation()
        # for good: what text says is text, and rendered templates are taken apart before
        inner.encode_special_tokens = True
        self._inner = inner
        spelling = Spelling.of(inner)
        self._spelling = spelling
        self._bytes = spelling.table(inner)
        added = inner.get_added_tokens_decoder()
        self._special = {
            one.content: index for index, one in added.items() if one.special and one.content
        }
        self._marks = Marks([one for one in added.values() if one.special and one.content])
        self._inside = _told_of_a_beginning(inner)
        self._check_special()
        self.eos_token: int | None = next(
            (self._special[name] for name in _ENDS if name in self._special), None
        )

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
            CheckpointError: the file is missing, or no tokenizer of a family that is known here.
        """
        try:
            size = path.stat().st_size
            if size > LARGEST_FILE_BYTES:
                fault = f"has {size} bytes; at most {LARGEST_FILE_BYTES} are allowed"
                raise CheckpointError.of(path, fault)
            data = path.read_bytes()
        except OSError as error:
            raise CheckpointError.of(path, f"cannot be read: {error}") from None
        try:
            return cls(contained(tokenizers.Tokenizer.from_buffer, data))
        except ValueError as error:
            raise CheckpointError.of(path, f"is no tokenizer that can be used: {error}") from None

    def to_json(self) -> str:
        return str(self._inner.to_str(pretty=False))

    @property
    def vocabulary(self) -> int:
        """One more than the highest token id."""
        return len(self._bytes)

    @property
    def special_tokens(self) -> dict[str, int]:
        """By what they are called."""
        return dict(self._special)

    def encode(self, text: str, *, special: bool = False) -> list[int]:
        """The tokens of a text, behind those that the tokenizer itself puts first, such as the
        beginning of a text. Other threads run meanwhile.

        Args:
            special: the text was written by a program that says where everything begins and ends:
                special tokens are read from it, and none are added. Never for what people write.
        """
        if special:
            return self.encode_around(text, ())
        return list(_run(self._inner, [text], add=True)[0].ids)

    def encode_around(self, text: str, foreign: Sequence[Span]) -> list[int]:
        """Like `encode(…, special=True)`, but no character of the `foreign` spans (start and end,
        in order) becomes part of a special token."""
        marks = list(self._marks.find(text, foreign))
        ends, starts = [0, *(mark.end for mark in marks)], [*(mark.start for mark in marks), None]
        parts = [text[end:start] for end, start in zip(ends, starts, strict=True)]
        first, rest = _run(self._inner, parts[:1]), _run(self._inside, parts[1:])
        tokens = list(first[0].ids)
        for mark, part in zip(marks, rest, strict=True):
            tokens += [self._special[mark.name], *part.ids]
        return tokens

    def decode(self, tokens: Iterable[int], *, at_start: bool = True) -> str:
        """The text of the tokens; bytes that are no UTF-8 show as U+FFFD. `at_start`: they begin
        a text, so that the space which SentencePiece puts there is left out."""
        opening = self.opening(at_start=at_start)
        return b"".join(opening.take(self.token_bytes(one)) for one in tokens).decode(
            errors="replace"
        )

    def token_bytes(self, token: int) -> bytes:
        """The token's share of the text in UTF-8, maybe half a character; none for a special
        token, nor for an id above the vocabulary (a model's head may be padded)."""
        return self._bytes[token] if 0 <= token < len(self._bytes) else b""

    def opening(self, *, at_start: bool) -> "Opening":
        """To be fed every token's bytes, from the first one on."""
        return Opening(self._spelling if at_start else Spelling(byte_level=True))

    def bytes_per_token(self, text: str) -> float:
        """Mean UTF-8 bytes a token over this text."""
        return len(text.encode()) / max(1, len(self.encode(text)))

    def _check_special(self) -> None:
        # a file may name any number for what it puts around a text
        around = _run(self._inner, [""], add=True)[0].ids
        if any(token >= len(self._bytes) for token in around):
            raise ValueError(f"it puts {max(around)} around a text, which is no token of it")
        unknown = getattr(self._inner.model, "unk_token", None)
        names = [name for name in self._special if name != unknown]
        for name, encoding in zip(names, _run(self._inner, names), strict=True):
            if self._special[name] in encoding.ids:
                raise ValueError(f"text can become its special token {name[:40]!r}")


class Opening:
    """Leaves out the space that SentencePiece writes before the first word of a text."""

    def __init__(self, spelling: Spelling) -> None:
        self._left = spelling.opening_spaces
        self._token = spelling.opening_token

    def take(self, part: bytes) -> bytes:
        """The part without what is left out of it."""
        if not part:
            return part
        if self._token:
            self._token = False
            return part.replace(b" ", b"")
        while self._left and part.startswith(b" "):
            part, self._left = part[1:], self._left - 1
        if part:
            self._left = 0
        return part


def _told_of_a_beginning(inner: tokenizers.Tokenizer) -> tokenizers.Tokenizer:
    """The same tokenizer for text that has something before it: it shares the vocabulary, and
    differs only where the family writes a space before the first word of all."""
    before = inner.pre_tokenizer
    if not isinstance(before, Metaspace) or before.prepend_scheme != "first":
        return inner
    inside = tokenizers.Tokenizer(inner.model)
    inside.normalizer = inner.normalizer
    inside.pre_tokenizer = Metaspace(before.replacement, "never", before.split)
    added = inner.get_added_tokens_decoder()
    inside.add_tokens([added[index] for index in sorted(added)])
    inside.encode_special_tokens = True
    if inside.get_added_tokens_decoder() != added:
        raise ValueError("the ids of its added tokens do not follow those of its vocabulary")
    return inside


def _run(inner: tokenizers.Tokenizer, texts: list[str], *, add: bool = False) -> Any:
    """The package's encodings. Its plain `encode` would hold up all other threads, and keep a
    hundred bytes a token of offsets that nobody asked for.

    Raises:
        CheckpointError: the tokenizer cannot read such a text.
    """
    try:
        return contained(inner.encode_batch_fast, texts, add_special_tokens=add)
    except ValueError as error:
        fault = f"its tokenizer cannot read this text: {error}"
        raise CheckpointError.of("tokenizer.json", fault) from None
