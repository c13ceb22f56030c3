"""From a plan to tensors: where a step's numbers lie on the device, and what of them changes.

Owns that memory, which stays in place; a step that differs from the one before only in its
tokens and positions moves no others. Knows nothing of what is computed with them.

Letters: M tokens of the step, W rows whose logits are wanted, B those that choose a token,
N scored tokens, S rows of the block table."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensor_llm.sampling import SamplingBatch, SamplingRows
from tensor_llm.serving.scheduler import Piece, Plan
from tensor_llm.serving.sequence import Sequence
from tensor_llm.serving.step import Chunk, StepBatch
from tensor_llm.serving.table import BlockTable
from tensor_llm.upload import upload


@dataclass(frozen=True, slots=True, kw_only=True)
class Staged:
    """A step on the device, and what is chosen after it."""

    batch: StepBatch
    # who gets a token; their logits come first
    choosers: list[Sequence]
    # their rows in the block table
    row_B: Tensor
    sampling: SamplingBatch
    logprobs: bool
    # the tokens that the other logits are asked about
    target_N: Tensor | None


class Staging:
    """Memory for one step under way."""

    def __init__(
        self, rows: int, table: BlockTable, block_tokens: int, logits_device: torch.device
    ) -> None:
        self._rows, self._table, self._block_tokens = rows, table, block_tokens
        self._device, self._logits_device = table.table_SX.device, logits_device
        self._sampling = SamplingRows(rows, logits_device)
        self._tensors: dict[str, Tensor] = {}
        self._staged: Staged | None = None
        # the decoding sequences of the last step, and where they stand now if nothing happened
        self._decodes: list[Sequence] = []
        self._reads: list[int] = []

    def fill(self, plan: Plan, newest_S: Tensor | None) -> Staged:
        """`newest` holds the newest token of each row where the host may not know it yet."""
        reads = [one.read for one in plan.decodes]
        staged = self._staged
        same = not plan.pieces and reads == self._reads and plan.decodes == self._decodes
        if staged is None or staged.batch.chunks or not same:
            staged = self._lay_out(plan, reads)
        else:
            staged.batch.position_M.add_(1)
            blocks = max(reads) // self._block_tokens + 1
            if blocks != staged.batch.decode_blocks:
                staged = self._lay_out(plan, reads)
        if plan.decodes:
            self._put_tokens(plan, staged.batch, newest_S)
        self._staged, self._decodes = staged, plan.decodes
        self._reads = [read + 1 for read in reads]
        return staged

    def _put_tokens(self, plan: Plan, batch: StepBatch, newest_S: Tensor | None) -> None:
        D = batch.decodes
        if newest_S is not None and any(one.pending for one in plan.decodes):
            torch.index_select(newest_S, 0, batch.sequence_M[:D], out=batch.token_M[:D])
        else:
            known = [one.tokens[-1] for one in plan.decodes]
            batch.token_M[:D] = upload(known, torch.int64, self._device)

    def _lay_out(self, plan: Plan, reads: list[int]) -> Staged:
        D = len(plan.decodes)
        rows = [one.row or 0 for one in plan.decodes]
        tokens, positions, sequences = [0] * D, reads[:], rows[:]
        for piece in plan.pieces:
            tokens += piece.sequence.tokens[piece.start : piece.end]
            positions += range(piece.start, piece.end)
            sequences += [piece.sequence.row or 0] * piece.count
        chunks = _chunks(plan.pieces, D)
        lasts, scored = _wanted(plan.pieces, chunks)
        choosers = plan.decodes + [piece.sequence for piece in plan.pieces if piece.samples]
        chooser_rows = [one.row or 0 for one in choosers]
        targets = _targets(plan.pieces)
        batch = StepBatch(
            token_M=self._put("token", tokens),
            position_M=self._put("position", positions),
            sequence_M=self._put("sequence", sequences),
            table_SX=self._table.table_SX,
            wanted_W=self._put("wanted", [*range(D), *lasts, *scored]),
            decodes=D,
            chunks=chunks,
            decode_blocks=max(reads) // self._block_tokens + 1 if reads else 0,
        )
        return Staged(
            batch=batch,
            choosers=choosers,
            row_B=self._put("row", chooser_rows, self._logits_device),
            sampling=self._sampling.write([one.request.sampling for one in choosers]),
            logprobs=any(one.request.logprobs for one in choosers),
            target_N=self._put("target", targets, self._logits_device) if targets else None,
        )

    def _put(self, name: str, values: list[int], device: torch.device | None = None) -> Tensor:
        """The values at the place of that name; it grows where it must."""
        device = device or self._device
        tensor = self._tensors.get(name)
        if tensor is None or len(tensor) < len(values):
            size = max(self._rows, 2 * len(values))
            tensor = torch.zeros(size, dtype=torch.int64, device=device)
            self._tensors[name] = tensor
        view = tensor[: len(values)]
        if values:
            view.copy_(upload(values, torch.int64, device))
        return view


def _chunks(pieces: list[Piece], first: int) -> tuple[Chunk, ...]:
    chunks = []
    for piece in pieces:
        row = piece.sequence.row or 0
        chunks.append(Chunk(first=first, count=piece.count, sequence=row, start=piece.start))
        first += piece.count
    return tuple(chunks)


def _wanted(pieces: list[Piece], chunks: tuple[Chunk, ...]) -> tuple[list[int], list[int]]:
    """The last token of each prompt that is read whole; all tokens of scored texts."""
    lasts: list[int] = []
    scored: list[int] = []
    for piece, chunk in zip(pieces, chunks, strict=True):
        end = chunk.first + chunk.count
        if piece.samples:
            lasts.append(end - 1)
        elif piece.sequence.request.score:
            scored += range(chunk.first, end)
    return lasts, scored


def _targets(pieces: list[Piece]) -> list[int]:
    """What follows each scored token."""
    targets: list[int] = []
    for piece in pieces:
        if piece.sequence.request.score:
            targets += piece.sequence.tokens[piece.start + 1 : piece.end + 1]
    return targets
