"""Text made ready to train on: documents, what is held out, token batches, and what a model of
token frequencies alone would reach.

Knows nothing of decoders or optimisers.

Letters: B sequences of a batch, T tokens of a sequence, N tokens of a text, V vocabulary."""

import hashlib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from noidle.errors import InvalidJob
from tensor_llm.tokenizer import Tokenizer

_SUFFIXES = (".txt", ".md", ".rst", ".text")
_BLOCK_CHARACTERS = 2000
_HELD_OUT_TOKENS = 16_384


def read_documents(path: Path) -> list[str]:
    """A text file, or all text files (.txt, .md, .rst, .text) under a folder in order of name.
    Bytes that are no UTF-8 become U+FFFD.

    Raises:
        InvalidJob: there is nothing to read.
    """
    files = [path] if path.is_file() else sorted(p for p in path.rglob("*") if p.is_file())
    wanted = [file for file in files if file == path or file.suffix.lower() in _SUFFIXES]
    texts = [file.read_text(encoding="utf-8", errors="replace") for file in wanted]
    documents = [text for text in texts if text.strip()]
    if not documents:
        raise InvalidJob.of("path", path.name, f"a text file or a folder with {_SUFFIXES} files")
    return documents


def split_documents(documents: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Training and held-out pieces. Blocks of lines are held out at even distances, so that
    both parts come from all over the text."""
    total = sum(map(len, documents))
    size = max(1, min(_BLOCK_CHARACTERS, int(total * share)))
    train: list[str] = []
    held: list[str] = []
    index = 0
    for document in documents:
        run = ""
        for block in _blocks(document, size):
            index += 1
            # epsilon: 0.29 * 100 is a little less than 29
            if int(index * share + 1e-9) > int((index - 1) * share + 1e-9):
                train.append(run)
                held.append(block)
                run = ""
            else:
                run += block
        train.append(run)
    return [piece for piece in train if piece], [piece for piece in held if piece]


def _blocks(document: str, size: int) -> Iterable[str]:
    block = ""
    for line in document.splitlines(keepends=True):
        while line:
            block, line = block + line[:size], line[size:]
            if len(block) >= size:
                yield block
                block = ""
    if block:
        yield block


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Tokens to learn from and tokens to measure on, both int64 on the CPU."""

    train_N: Tensor
    held_N: Tensor
    vocabulary: int

    @classmethod
    def of(cls, train: Sequence[str], held: Sequence[str], tokenizer: Tokenizer) -> "Corpus":
        """Each piece of text ends with the end token."""
        return cls(
            train_N=_tokens(train, tokenizer),
            held_N=_tokens(held, tokenizer)[: _HELD_OUT_TOKENS + 1],
            vocabulary=tokenizer.vocabulary,
        )

    def check(self, sequence: int) -> None:
        """
        Raises:
            InvalidJob: the text is too short to draw sequences of this length.
        """
        if len(self.train_N) <= sequence or len(self.held_N) < 2:
            found = f"{len(self.train_N)} tokens to train on, {len(self.held_N)} held out"
            wanted = f"more than {sequence} tokens, or a shorter sequence; 2 tokens held out"
            raise InvalidJob.of("text", found, wanted)

    def batch(self, *, seed: int, step: int, batch: int, sequence: int) -> tuple[Tensor, Tensor]:
        """Inputs and targets (B, T) at random places, the same for the same (seed, step)."""
        digest = hashlib.sha256(f"{seed}:{step}".encode()).digest()
        generator = torch.Generator().manual_seed(int.from_bytes(digest[:7], "big"))
        start_B = torch.randint(len(self.train_N) - sequence, (batch,), generator=generator)
        token_BT = self.train_N[start_B[:, None] + torch.arange(sequence + 1)]
        return token_BT[:, :-1], token_BT[:, 1:]

    def windows(self, sequence: int) -> list[tuple[Tensor, Tensor]]:
        """The held-out text as inputs and targets (T): every token but the first is predicted
        once."""
        inputs, targets = (
            torch.split(self.held_N[:-1], sequence),
            torch.split(self.held_N[1:], sequence),
        )
        return list(zip(inputs, targets, strict=True))

    def unigram_loss(self) -> float:
        """Nats a held-out token for a model that knows only how often each token occurs in the
        training part (one added to every count, so that none is impossible)."""
        count_V = torch.bincount(self.train_N, minlength=self.vocabulary).double() + 1
        share_V = (count_V / count_V.sum()).log()
        return -float(share_V[self.held_N[1:]].mean())

    def digest(self) -> str:
        """Changes when any token does."""
        joined_N = torch.cat((self.train_N, torch.tensor([-1]), self.held_N))
        return hashlib.sha256(joined_N.numpy().tobytes()).hexdigest()


def _tokens(pieces: Sequence[str], tokenizer: Tokenizer) -> Tensor:
    end = [] if tokenizer.eos_token is None else [tokenizer.eos_token]
    return torch.tensor([t for piece in pieces for t in [*tokenizer.encode(piece), *end]])
