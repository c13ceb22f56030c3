"""The plan of a decoder, plain or packed."""

import pytest
import torch

from tensor_llm.config import ModelConfig
from tensor_llm.kernels.binding import pack_decoder, plan_of
from tensor_llm.kernels.plan import KVBlocks
from tensor_llm.kernels.rows import Rows
from tensor_llm.kernels.step import DecodeStep
from tensor_llm.model import new_decoder
from tensor_llm.quantization import WeightFormat
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor
from tests.unit.tensor_llm.kernels.making import error
from tests.unit.tensor_llm.serving.batches import make_batch


@pytest.mark.parametrize("format_", [None, *WeightFormat])
@pytest.mark.parametrize("tied", [True, False])
def test_a_decoders_step_equals_its_own_decoding(format_, tied):
    """Two rows of different lengths, prefilled by the decoder, continued by either."""
    config = ModelConfig(
        layers=2,
        hidden=64,
        heads=4,
        kv_heads=2,
        head_size=16,
        mlp=96,
        vocabulary=75,
        context=64,
        tied_head=tied,
    )
    decoder = new_decoder(config, seed=1).to(torch.bfloat16)
    if format_ is not None:
        pack_decoder(decoder, format_)
    caches = [PagedCache(config, blocks=3, block_tokens=32, dtype=torch.bfloat16) for _ in range(2)]
    table = [[2], [0]]
    executors = [TorchExecutor(decoder, cache) for cache in caches]
    for executor in executors:
        texts = {row: (list(range(length)), 0) for row, length in enumerate((9, 20))}
        executor.run(make_batch({}, texts, table, 32))
    batch = make_batch({0: (5, 9), 1: (70, 20)}, {}, table, 32)
    wanted = executors[0].run(batch).land()
    blocks = KVBlocks(keys=caches[1].keys, values=caches[1].values)
    step = DecodeStep(plan_of(decoder), blocks)
    with torch.inference_mode():
        rows = Rows.of(batch.position_M, batch.sequence_M, batch.table_SX)
        found = step(batch.token_M, rows)
    assert error(found, wanted) < 0.04
    for part in ("keys", "values"):
        for mine, theirs in zip(getattr(caches[1], part), getattr(caches[0], part), strict=True):
            assert error(mine, theirs) < 0.02
