"""A step of a whole decoder against its form in plain torch, at every level."""

from dataclasses import replace

import pytest
import torch

from tensor_llm.kernels import reference
from tensor_llm.kernels.plan import KVBlocks
from tensor_llm.kernels.rows import Rows
from tensor_llm.kernels.step import DecodeStep
from tests.unit.tensor_llm.kernels.making import (
    KINDS,
    TOLERANCE,
    error,
    make_blocks,
    make_plan,
    run,
    some_tokens,
)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(
    "shape",
    [
        {"heads": 4, "kv_heads": 2},
        {"heads": 6, "kv_heads": 2, "head_size": 32, "extras": True},
        {"heads": 3, "kv_heads": 3},
    ],
    ids=["grouped", "norms, biases, window", "every head its own"],
)
def test_a_step_equals_its_torch_form_at_every_level(levels, kind, dtype, shape):
    """Rows of several lengths whose blocks lie scattered, 40 tokens long."""
    plan = make_plan(kind, **shape)
    tables = torch.randperm(36, generator=torch.Generator().manual_seed(1)).view(3, 12)
    starts = torch.tensor([0, 3, 1])
    token_TM = some_tokens(plan, 40, 3)
    plain = DecodeStep(plan, make_blocks(plan, 36, 4, dtype))
    plain._fused = None
    wanted = run(plain, token_TM, tables, starts)
    # each layer adds an error of the size of a product's; a key may round to its neighbour
    allowed = 4 * TOLERANCE[kind] + (0 if dtype is torch.float32 else 3e-4)
    for kernels in levels:
        step = DecodeStep(plan, make_blocks(plan, 36, 4, dtype), kernels=kernels)
        assert step.fused
        assert error(run(step, token_TM, tables, starts), wanted) < allowed, kernels.name


@pytest.mark.parametrize(
    "shape",
    [
        {"heads": 4, "kv_heads": 2},
        {"heads": 6, "kv_heads": 2, "head_size": 32, "extras": True},
        {"heads": 36, "kv_heads": 1},
    ],
    ids=["grouped", "norms, biases, window", "more heads than a tile"],
)
@pytest.mark.parametrize(
    ("kind", "dtype"),
    [("int8", torch.float32), ("int8", torch.bfloat16), ("bfloat16", torch.bfloat16)],
    ids=str,
)
def test_chunks_of_sequences_give_what_single_tokens_give(levels, shape, kind, dtype):
    """Two prompts in three calls, the first of them ending within a block, a tile and a run;
    only the wanted rows come back."""
    plan = make_plan(kind, **shape)
    token_ST = some_tokens(plan, 2, 90)
    tables = torch.randperm(12).view(2, 6)
    single = DecodeStep(plan, make_blocks(plan, 12, 16, dtype))
    single._fused = None
    wanted = run(single, token_ST.T, tables, torch.tensor([0, 0]))[[49, 69, 89], 1]
    for kernels in levels:
        step = DecodeStep(plan, make_blocks(plan, 12, 16, dtype), kernels=kernels)
        found = []
        for start, end in ((0, 50), (50, 70), (70, 90)):
            position = torch.arange(start, end).repeat(2)
            sequence = torch.arange(2).repeat_interleave(end - start)
            last = torch.tensor([2 * (end - start) - 1])
            rows = Rows.of(position, sequence, tables, last)
            found.append(step(token_ST[:, start:end].flatten(), rows))
        assert error(torch.cat(found), wanted) < 4 * TOLERANCE["int8"], kernels.name


@pytest.mark.parametrize("heads", [(1, 1), (6, 2), (14, 2), (9, 1)], ids=str)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_a_long_past_equals_its_torch_form(levels, heads, dtype):
    """Several spans, that end within a stretch and within a block; windows that hide whole ones."""
    plan = make_plan("float32", heads=heads[0], kv_heads=heads[1], head_size=80, extras=True)
    blocks = make_blocks(plan, 3 * 80, 24, dtype)
    for tensor in (*blocks.keys, *blocks.values):
        tensor.normal_()
    table = torch.randperm(3 * 80).view(3, 80)
    position, each = torch.tensor([1287, 511, 1919]), torch.arange(3)
    token_M = some_tokens(plan, 3)
    rows = Rows.of(position, each, table)
    plain = DecodeStep(plan, blocks)
    plain._fused = None
    wanted = plain(token_M, rows)
    for kernels in levels:
        found = DecodeStep(plan, blocks, kernels=kernels)(token_M, rows)
        assert error(found, wanted) < 1e-4, kernels.name


@pytest.mark.parametrize("head_size", [32, 48, 96])
@pytest.mark.parametrize("heads", [(2, 2), (6, 2), (5, 1)], ids=str)
def test_a_chunk_behind_a_long_past_equals_its_torch_form(levels, heads, head_size):
    """Runs and steps of the softmax that end anywhere; two sequences, a single token between.
    Where tiles compute, queries and weights are rounded to bfloat16."""
    plan = make_plan("float32", heads=heads[0], kv_heads=heads[1], head_size=head_size, extras=True)
    blocks = make_blocks(plan, 3 * 30, 24, torch.bfloat16)
    for tensor in (*blocks.keys, *blocks.values):
        tensor.normal_()
    table = torch.randperm(3 * 30).view(3, 30)
    position = torch.cat((torch.arange(290, 373), torch.tensor([600]), torch.arange(27)))
    sequence = torch.repeat_interleave(torch.arange(3), torch.tensor([83, 1, 27]))
    rows = Rows.of(position, sequence, table)
    token_M = some_tokens(plan, len(position))
    plain = DecodeStep(plan, blocks)
    plain._fused = None
    wanted = plain(token_M, rows)
    for kernels in levels:
        allowed = 0.01 if kernels.has_tiles else 3e-4
        found = DecodeStep(plan, blocks, kernels=kernels)(token_M, rows)
        assert error(found, wanted) < allowed, kernels.name


def test_a_row_is_the_same_alone_and_in_company(levels):
    """Bit for bit up to 16 rows at packed weights: a batch must not change what a job draws."""
    plan = make_plan("int4", heads=4, kv_heads=2)
    token_M = some_tokens(plan, 11)
    tables = torch.arange(11)[:, None]
    for kernels in levels:
        blocks = make_blocks(plan, 11, 4, torch.float32)
        step, start = DecodeStep(plan, blocks, kernels=kernels), torch.zeros(11).long()
        together = step(token_M, Rows.of(start, torch.arange(11), tables))
        alone = step(token_M[7:8], Rows.of(start[:1], torch.tensor([7]), tables))
        assert torch.equal(together[7:8], alone), kernels.name


def test_the_number_of_threads_changes_nothing(levels):
    plan = make_plan("int4", heads=4, kv_heads=2)
    token_M, each = some_tokens(plan, 3), torch.arange(3)
    before = torch.get_num_threads()
    try:
        results = []
        for threads in (1, 2, 5):
            torch.set_num_threads(threads)
            step = DecodeStep(plan, make_blocks(plan, 3, 4, torch.float32), kernels=levels[-1])
            results.append(step(token_M, Rows.of(torch.zeros(3), each, each[:, None])))
    finally:
        torch.set_num_threads(before)
    assert torch.equal(results[0], results[1])
    assert torch.equal(results[0], results[2])


def test_sizes_that_no_vector_holds_go_through_torch():
    step = DecodeStep(
        plan := make_plan("int8", heads=4, kv_heads=2, head_size=6),
        make_blocks(plan, 1, 4, torch.float32),
    )
    assert not step.fused
    first = torch.tensor([0])
    found = step(first, Rows.of(first, first, first[:, None]))
    assert found.isfinite().all()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("token_M", 75),
        ("position_M", 12),
        ("position_M", -1),
        ("sequence_M", 1),
        ("table_SX", 2),
        ("table_SX", -1),
        ("wanted_W", 2),
    ],
)
@pytest.mark.parametrize("fused", [True, False])
def test_what_points_outside_is_refused(field, value, fused):
    plan = make_plan("int8", heads=4, kv_heads=2)
    step = DecodeStep(plan, make_blocks(plan, 2, 4, torch.float32))
    if not fused:
        step._fused = None
    parts = {
        "token_M": [0, 1],
        "position_M": [3, 4],
        "sequence_M": [0, 0],
        "table_SX": [[0, 1, 1]],
        "wanted_W": [1],
    }
    good = {name: torch.tensor(part) for name, part in parts.items()}
    step(good.pop("token_M"), Rows.of(**good))
    bad = {name: torch.tensor(part) for name, part in parts.items()}
    bad[field].view(-1)[0] = value
    with pytest.raises(ValueError, match=field):
        step(bad.pop("token_M"), Rows.of(**bad))


def test_layers_without_their_ends_continue_each_other(levels):
    """As where a model is cut over devices."""
    plan = make_plan("int8", heads=4, kv_heads=2, extras=True)
    blocks = make_blocks(plan, 2, 4, torch.float32)
    token_M, each = some_tokens(plan, 2), torch.arange(2)
    rows = Rows.of(torch.zeros(2), each, each[:, None])
    for kernels in levels:
        wanted = DecodeStep(plan, blocks, kernels=kernels)(token_M, rows)
        x_ME = plan.embedding.pick(token_M)
        for cut in (slice(0, 1), slice(1, 3)):
            part = replace(plan, layers=plan.layers[cut], embedding=None, head=None)
            own = KVBlocks(keys=blocks.keys[cut], values=blocks.values[cut])
            before = x_ME.clone()
            x_ME, given = DecodeStep(part, own, kernels=kernels).layers(x_ME, rows), x_ME
            assert torch.equal(given, before), "what was given is left alone"
        normed_ME = reference._norm(x_ME, plan.norm_E, plan)
        found = kernels.linear(normed_ME, plan.head.weight)
        assert error(found, wanted) < 1e-4, kernels.name
