"""C++ kernels against plain torch, at every level this processor can run.

Tolerances: products of bfloat16 weights round activations to bfloat16 (relative error 0.4 %);
those of packed weights to 8 bits a group (1.2 %); float32 only rounds. Errors are root mean
square over the result."""

import shutil
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from tensor_llm.config import ModelConfig
from tensor_llm.kernels import builder, reference
from tensor_llm.kernels.binding import pack_decoder, plan_of
from tensor_llm.kernels.library import Kernels, all_kernels
from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear, linear, pack_linears
from tensor_llm.kernels.plan import DecoderPlan, KVBlocks, LayerPlan, Projection
from tensor_llm.kernels.rows import Rows
from tensor_llm.kernels.step import DecodeStep
from tensor_llm.model import new_decoder
from tensor_llm.quantization import PackedWeight, WeightFormat, quantize, relative_error
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor
from tests.unit.tensor_llm.serving.batches import make_batch

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.004, "int8": 0.012, "int4": 0.012}
KINDS = list(TOLERANCE)
# smaller than a tile, no multiple of anything, several chunks
SIZES = [(1, 1), (16, 32), (37, 100), (130, 257), (320, 512)]
ROWS = [1, 2, 3, 5, 8, 9, 16, 17, 33, 50]


@pytest.fixture(autouse=True)
def _same_numbers_every_time() -> None:
    torch.manual_seed(0)


@pytest.fixture(scope="module")
def levels() -> list[Kernels]:
    if shutil.which("c++") is None or shutil.which("ninja") is None:
        pytest.skip("no C++ compiler and ninja on the path: the kernels cannot be built")
    return all_kernels()


def make_weight(kind: str, rows: int, columns: int, seed: int = 0) -> Tensor | PackedWeight:
    generator = torch.Generator().manual_seed(seed)
    weight = torch.randn(rows, columns, generator=generator) / columns**0.5
    if kind in ("float32", "bfloat16"):
        return weight.to(getattr(torch, kind))
    return quantize(weight, WeightFormat(kind))


def dense(weight: Tensor | PackedWeight) -> Tensor:
    return weight.float() if isinstance(weight, Tensor) else weight.dequantize()


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_products_equal_torch_at_every_level(levels, kind, size):
    weight = make_weight(kind, *size)
    bias = torch.randn(size[0])
    for rows in ROWS:
        x = torch.randn(rows, size[1])
        wanted = x @ dense(weight).T + bias
        for kernels in levels:
            found = kernels.linear(x, weight, bias)
            assert error(found, wanted) < TOLERANCE[kind], (kernels.name, rows)


@pytest.mark.parametrize("size", [(37, 100), (32, 40), (48, 64)], ids=str)
def test_what_lies_behind_a_weight_does_not_count(levels, size):
    """Tiles read whole rows of 32 columns: not beyond the last row."""
    rows, columns = size
    memory = torch.full((rows * columns + 2048,), torch.nan, dtype=torch.bfloat16)
    weight = memory[: rows * columns].view(size).copy_(make_weight("bfloat16", *size))
    for count in ROWS:
        for kernels in levels:
            found = kernels.linear(torch.randn(count, columns), weight)
            assert found.isfinite().all(), (kernels.name, count)


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_a_group_of_large_activations_does_not_blur_the_others(levels, kind):
    """Why activations have a scale a group, not one a row."""
    weight = make_weight(kind, 32, 256)
    x = torch.randn(1, 256)
    x[:, :64] *= 1000
    part = x.clone()
    part[:, :64] = 0
    for kernels in levels:
        rest = kernels.linear(x, weight) - kernels.linear(x - part, weight)
        assert error(rest, part @ dense(weight).T) < 0.05, kernels.name


@pytest.mark.parametrize("kind", ["int8", "int4"])
def test_unpacking_equals_torch_at_every_level(levels, kind):
    weight = make_weight(kind, 37, 100)
    for kernels in levels:
        assert error(kernels.dequantize(weight).float(), weight.dequantize()) < 0.003


@pytest.mark.parametrize("format_", list(WeightFormat))
@pytest.mark.parametrize("size", SIZES, ids=str)
def test_packing_equals_torch_at_every_level(levels, format_, size):
    weight = torch.randn(*size)
    wanted = quantize(weight, format_)
    for kernels in levels:
        found = kernels.quantize(weight, format_)
        differing = (found.codes != wanted.codes).float().mean()
        assert differing < 0.002, kernels.name
        assert relative_error(weight, found) <= relative_error(weight, wanted) * 1.001


@pytest.mark.parametrize("format_", list(WeightFormat))
def test_packing_keeps_to_extremes_and_refuses_what_is_not_finite(levels, format_):
    weight = torch.randn(16, 64)
    for kernels in levels:
        for factor in (0.0, 1e-37, 1e30):
            wanted = quantize(weight * factor, format_).dequantize()
            assert torch.equal(kernels.quantize(weight * factor, format_).dequantize(), wanted)
        with pytest.raises(ValueError, match="not finite"):
            kernels.quantize(weight / 0, format_)


def test_zeros_and_huge_activations_stay_finite(levels):
    weight = make_weight("int8", 32, 64)
    for kernels in levels:
        assert not kernels.linear(torch.zeros(2, 64), weight).any()
        assert kernels.linear(torch.full((2, 64), 1e30), weight).isfinite().all()
        assert kernels.linear(torch.full((2, 64), 1e-42), weight).isfinite().all()


def make_plan(
    kind: str, *, heads: int, kv_heads: int, head_size: int = 16, extras: bool = False
) -> DecoderPlan:
    hidden, mlp, vocabulary, seed = 64, 96, 75, iter(range(1000))

    def project(rows: int, columns: int, biased: bool = False) -> Projection:
        bias = torch.randn(rows) if biased else None
        return Projection(weight=make_weight(kind, rows, columns, next(seed)), bias_N=bias)

    def norm(size: int) -> Tensor:
        return 1 + 0.1 * torch.randn(size)

    def layer(window: int | None = None) -> LayerPlan:
        query_width, kv_width = heads * head_size, kv_heads * head_size
        return LayerPlan(
            attention_norm_E=norm(hidden),
            mlp_norm_E=norm(hidden),
            query=project(query_width, hidden, extras),
            key=project(kv_width, hidden, extras),
            value=project(kv_width, hidden, extras),
            output=project(hidden, query_width),
            gate=project(mlp, hidden),
            up=project(mlp, hidden),
            down=project(hidden, mlp),
            query_norm_D=norm(head_size) if extras else None,
            key_norm_D=norm(head_size) if extras else None,
            window=window,
        )

    return DecoderPlan(
        layers=(layer(), layer(7 if extras else None), layer(50 if extras else None)),
        embedding=make_weight(kind, vocabulary, hidden, next(seed)),
        norm_E=norm(hidden),
        head=project(vocabulary, hidden),
        frequency_D=10_000.0 ** (-torch.arange(0, head_size, 2).float() / head_size),
        heads=heads,
        kv_heads=kv_heads,
        head_size=head_size,
        norm_epsilon=1e-5,
        rotary_scale=1.1 if extras else 1.0,
    )


def make_blocks(plan: DecoderPlan, blocks: int, tokens: int, dtype: torch.dtype) -> KVBlocks:
    shape = (blocks, tokens, plan.kv_heads, plan.head_size)
    keys, values = (tuple(torch.zeros(shape, dtype=dtype) for _ in plan.layers) for _ in range(2))
    return KVBlocks(keys=keys, values=values)


def run(step: DecodeStep, token_TM: Tensor, tables: Tensor, starts: Tensor) -> Tensor:
    """Feeds each row its tokens one by one."""
    each = torch.arange(len(tables))
    return torch.stack(
        [
            step(token_M, Rows.of(starts + index, each, tables))
            for index, token_M in enumerate(token_TM)
        ]
    )


def some_tokens(plan: DecoderPlan, *shape: int) -> Tensor:
    return torch.randint(plan.vocabulary, shape)


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
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_chunks_of_sequences_give_what_single_tokens_give(levels, shape, dtype):
    """Two prompts in three calls, the first of them ending within a block, a tile and a run;
    only the wanted rows come back."""
    plan = make_plan("int8", **shape)
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


@pytest.mark.parametrize("format_", list(WeightFormat))
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_packed_layers_take_the_place_of_plain_ones(format_, dtype):
    model = nn.Sequential(nn.Linear(64, 48), nn.SiLU(), nn.Sequential(nn.Linear(48, 37))).to(dtype)
    x = torch.randn(2, 3, 64, dtype=dtype)
    wanted = model(x).detach()
    pack_linears(model, format_)
    assert isinstance(model[2][0], PackedLinear)
    found = model(x)
    assert found.dtype is dtype
    assert error(found.float(), wanted.float()) < (0.03 if format_ is WeightFormat.INT8 else 0.2)


def test_layers_without_a_library_do_the_same_in_torch(monkeypatch):
    monkeypatch.setattr("tensor_llm.kernels.linear.best_kernels", lambda: None)
    for kind in KINDS:
        weight = make_weight(kind, 37, 100)
        x = torch.randn(2, 100)
        assert error(linear(x, weight), x @ dense(weight).T) < 1e-5


def test_a_packed_embedding_reads_rows():
    packed = make_weight("int8", 37, 64)
    token = torch.tensor([[0, 36], [5, 5]])
    found = PackedEmbedding(packed, torch.bfloat16)(token)
    assert torch.equal(found, packed.dequantize()[token].bfloat16())


def test_weights_elsewhere_or_of_other_types_are_refused(levels):
    with pytest.raises(ValueError, match=r"weight_NK is torch\.float16 on cpu: allowed is"):
        levels[0].linear(torch.randn(1, 8), torch.randn(4, 8).half())
    with pytest.raises(ValueError, match="x_MK has shape"):
        levels[0].linear(torch.randn(1, 9), make_weight("int8", 4, 8))


def test_a_machine_without_a_compiler_is_told_what_to_install(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CXX", raising=False)
    with pytest.raises(builder.BuildFault, match=r"no c\+\+ on the path: install g\+\+"):
        builder.library_path(tmp_path)


def test_what_the_compiler_says_reaches_the_message(monkeypatch, tmp_path, levels):
    broken = tmp_path / "broken"
    broken.mkdir()
    (broken / "a.cpp").write_text("#error this cannot be built\n")
    monkeypatch.setattr(builder, "SOURCES", broken)
    with pytest.raises(builder.BuildFault, match="this cannot be built"):
        builder.library_path(tmp_path / "cache")
    assert not list((tmp_path / "cache").iterdir()), "the build's folder is gone"
