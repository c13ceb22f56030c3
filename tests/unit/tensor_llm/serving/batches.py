"""Steps written out by hand."""

import torch

from tensor_llm.serving.step import Chunk, StepBatch


def make_batch(
    decodes: dict[int, tuple[int, int]],
    chunks: dict[int, tuple[list[int], int]],
    table: list[list[int]],
    block_tokens: int = 4,
) -> StepBatch:
    """By row of the table: a token and its position, and tokens and where they start."""
    tokens = [token for token, _ in decodes.values()]
    positions = [position for _, position in decodes.values()]
    sequences, parts = list(decodes), []
    for row, (text, start) in chunks.items():
        first = len(tokens)
        parts.append(Chunk(first=first, count=len(text), sequence=row, start=start))
        tokens += text
        positions += range(start, start + len(text))
        sequences += [row] * len(text)
    return StepBatch(
        token_M=torch.tensor(tokens),
        position_M=torch.tensor(positions),
        sequence_M=torch.tensor(sequences),
        table_SX=torch.tensor(table),
        wanted_W=torch.arange(len(tokens)),
        decodes=len(decodes),
        chunks=tuple(parts),
        decode_blocks=max(positions[: len(decodes)], default=0) // block_tokens + 1,
    )
