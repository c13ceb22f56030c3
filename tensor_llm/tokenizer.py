"""Text to tokens and back: byte-pair encoding (Sennrich et al. 2016), over bytes as in GPT-2 or
with bytes as a fallback as in SentencePiece; trained and run by the `tokenizers` package.

Owns the vocabulary, the bytes behind each token, and the rule that text is never a special token.
Knows nothing of models, streams or chat templates."""

import bisect
import re
import threading
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers.decoders import ByteLevel as ByteLevelDecoder
from tokenizers.models import BPE
from tokenizers.pre_tokenizers import ByteLevel, Metaspace
from tokenizers.trainers import BpeTrainer

from noidle.errors import CheckpointError
from tensor_llm.spelling import Spelling

END = "<|end|>"
"""The token between documents, and after an answer."""
SMALLEST_VOCABULARY = 257
"""256 bytes and `END`."""
LARGEST_FILE_BYTES = 128 << 20
# where no config says which, in the order in which families are asked
_ENDS = (END, "<|eot_id|>", "<|im_end|>", "<|end_of_text|>", "<|endoftext|>", "</s>")
Span = tuple[int, int]


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
        inner.no_padding()
        inner.no_truncation()
        self._inner = inner
        # the package keeps whether special tokens are read from text as a property
        self._lock = threading.Lock()
        spelling = _check(inner)
        self._spelling = spelling
        self._bytes = spelling.table(inner)
        self._special: dict[str, int] = {
            token.content: index
            for index, token in inner.get_added_tokens_decoder().items()
            if token.special
        }
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
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise CheckpointError.of(path, f"cannot be read: {error}") from None
        try:
            return cls(_contained(tokenizers.Tokenizer.from_str, text))
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
        beginning of a text.

        Args:
            special: the text was written by a program that says where everything begins and ends:
                special tokens are read from it, and none are added. Never for what people write.
        """
        return list(self._encode(text, special=special).ids)

    def encode_around(self, text: str, foreign: Sequence[Span]) -> list[int]:
        """Like `encode(…, special=True)`, but no character of the `foreign` spans (start and end,
        in order) becomes part of a special token."""
        encoding = self._encode(text, special=True)
        names = {index: name for name, index in self._special.items()}
        for index, span in zip(encoding.ids, encoding.offsets, strict=True):
            if index in names and _touches(_core(text, names[index], span), foreign):
                return self._encode_apart(text, foreign)
        return list(encoding.ids)

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

    def _encode(self, text: str, *, special: bool) -> tokenizers.Encoding:
        with self._lock:
            self._inner.encode_special_tokens = not special
            return self._run(text, add=not special)

    def _encode_apart(self, text: str, foreign: Sequence[Span]) -> list[int]:
        """Special tokens are looked for between the foreign spans alone, and what lies between
        two of them is encoded as text."""
        tokens: list[int] = []
        end = 0
        for start, stop, index in self._own_special(text, foreign):
            tokens += self._encode_inside(text[end:start], first=end == 0)
            tokens.append(index)
            end = stop
        return tokens + self._encode_inside(text[end:], first=end == 0)

    def _own_special(self, text: str, foreign: Sequence[Span]) -> Iterable[tuple[int, int, int]]:
        # where two begin at the same place, the longer one counts
        names = sorted(self._special, key=len, reverse=True)
        pattern = re.compile("|".join(map(re.escape, names)))
        ends = [end for _, end in foreign]
        starts = [start for start, _ in foreign]
        for begin, stop in zip([0, *ends], [*starts, len(text)], strict=True):
            for match in pattern.finditer(text, begin, stop):
                yield match.start(), match.end(), self._special[match[0]]

    def _encode_inside(self, text: str, *, first: bool) -> list[int]:
        if not text:
            return []
        before = self._inner.pre_tokenizer
        # it is not told that this text has something before it
        told = not first and isinstance(before, Metaspace) and before.prepend_scheme == "first"
        with self._lock:
            self._inner.encode_special_tokens = True
            if not told:
                return list(self._run(text, add=False).ids)
            before.prepend_scheme = "never"
            try:
                return list(self._run(text, add=False).ids)
            finally:
                before.prepend_scheme = "first"

    def _run(self, text: str, *, add: bool) -> tokenizers.Encoding:
        try:
            encoding: tokenizers.Encoding = _contained(
                self._inner.encode, text, add_special_tokens=add
            )
        except ValueError as error:
            fault = f"its tokenizer cannot read this text: {error}"
            raise CheckpointError.of("tokenizer.json", fault) from None
        return encoding

    def _check_special(self) -> None:
        unknown = getattr(self._inner.model, "unk_token", None)
        for name, index in self._special.items():
            if name not in ("", unknown) and index in self._run(name, add=False).ids:
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


def _check(inner: tokenizers.Tokenizer) -> Spelling:
    if not isinstance(inner.model, BPE):
        raise ValueError(f"its model is {type(inner.model).__name__}, not BPE")
    if inner.model.dropout:
        raise ValueError("it drops merges at random")
    inner.encode_special_tokens = True
    return Spelling.of(inner)


def _contained(call: Any, *arguments: Any, **named: Any) -> Any:
    """What the package answers; it raises bare Exception, and its panics are no Exception."""
    try:
        return call(*arguments, **named)
    except (KeyboardInterrupt, SystemExit):
        raise
    except BaseException as error:  # noqa: BLE001 -- see above
        raise ValueError(str(error)[:200] or type(error).__name__) from None


def _core(text: str, name: str, span: Span) -> Span:
    """Where the token's name lies, without spaces that the token takes along."""
    start = text.find(name, *span)
    return span if start < 0 else (start, start + len(name))


def _touches(span: Span, foreign: Sequence[Span]) -> bool:
    place = bisect.bisect_right(foreign, span[0], key=lambda one: one[1])
    return place < len(foreign) and foreign[place][0] < span[1]
