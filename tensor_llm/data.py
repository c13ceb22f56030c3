"""Text made ready to train on: documents, what is held out, token batches, and what a model of
token frequencies alone would reach.

Knows nothing of decoders or optimisers.

Letters: B sequences of a batch, T tokens of a sequence, N tokens of a text, V vocabulary."""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from noidle.errors import InvalidJob
from tensor_llm.tokenizer import Tokenizer

_BLOCK_CHARACTERS = 2000
_HELD_OUT_TOKENS = 16_384


def split_documents(documents: Sequence[str], share: float) -> tuple[list[str], list[str]]:
    """Training and held-out pieces. Blocks of lines are held out at even distances, so that
    both parts come from all over the text."""
    total = sum(map(len, documents))
    size = max(1, min(_BLOCK_CHARACTERS, int(total * share / 2)))
    train: list[str] = []
    held: list[str] = []
    seen = kept = 0
    for document in documents:
        run: list[str] = []
        for block in _blocks(document, size):
            seen += len(block)
            # whichever leaves the share nearer to what was asked for
            if kept + len(block) / 2 < share * seen:
                kept += len(block)
                train.append("".join(run))
                held.append(block)
                run = []
            else:
                run.append(block)
        train.append("".join(run))
    return [piece for piece in train if piece], held


def _blocks(document: str, size: int) -> Iterator[str]:
    """Pieces of `size` characters, lengthened to the end of the line where that is near."""
    start = 0
    while start < len(document):
        line_end = document.find("\n", start + size - 1, start + 2 * size)
        end = start + size if line_end < 0 else line_end + 1
        yield document[start:end]
        start = end


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Tokens to learn from and tokens to measure on, both int32 on the CPU."""

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
        token_BT = self.train_N[start_B[:, None] + torch.arange(sequence + 1)].long()
        return token_BT[:, :-1], token_BT[:, 1:]

    def windows(self, sequence: int) -> list[tuple[Tensor, Tensor]]:
        """The held-out text as inputs and targets (T): every token but the first is predicted
        once."""
        held_N = self.held_N.long()
        inputs, targets = torch.split(held_N[:-1], sequence), torch.split(held_N[1:], sequence)
        return list(zip(inputs, targets, strict=True))

    def unigram_loss(self) -> float:
        """Nats a held-out token for a model that knows only how often each token occurs in the
        training part (one added to every count, so that none is impossible)."""
        count_V = torch.bincount(self.train_N, minlength=self.vocabulary).double() + 1
        share_V = (count_V / count_V.sum()).log()
        return -float(share_V[self.held_N[1:].long()].mean())

    def digest(self) -> str:
        """Changes when any token does."""
        parts = (self.train_N.numpy().tobytes(), self.held_N.numpy().tobytes())
        return hashlib.sha256(b"%d:%b%b" % (len(parts[0]), *parts)).hexdigest()


def _tokens(pieces: Sequence[str], tokenizer: Tokenizer) -> Tensor:
    end = [] if tokenizer.eos_token is None else [tokenizer.eos_token]
    # a piece at a time: Python's integers take eight times the room
    parts = [torch.tensor([*tokenizer.encode(piece), *end], dtype=torch.int32) for piece in pieces]
    return torch.cat(parts) if parts else torch.zeros(0, dtype=torch.int32)
