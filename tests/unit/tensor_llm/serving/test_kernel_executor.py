"""The C++ step as an executor against plain torch, for each trait that a family may have.

Tolerances are root mean square over the result: float32 only rounds; bfloat16 weights round each
product's activations to bfloat16, packed ones to 8 bits a group."""

import pytest
import torch
from torch import Tensor, nn

from tensor_llm.config import ModelConfig
from tensor_llm.kernels.binding import pack_decoder
from tensor_llm.kernels.library import all_kernels, best_kernels
from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear
from tensor_llm.model import Decoder, new_decoder
from tensor_llm.quantization import WeightFormat
from tensor_llm.rope_scaling import RopeKind, RopeScaling
from tensor_llm.serving.core import Core
from tensor_llm.serving.executor import Executor
from tensor_llm.serving.kernel_executor import MOST_ROWS, KernelExecutor, serves
from tensor_llm.serving.opening import executor_of
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.request import Request
from tensor_llm.serving.step import Chunk, StepBatch
from tensor_llm.serving.torch_executor import TorchExecutor
from tests.unit.tensor_llm.builders import random_tokens
from tests.unit.tensor_llm.serving.executors import finish

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.02, "int8": 0.04, "int4": 0.04}
ROPE = RopeScaling(
    kind=RopeKind.LLAMA3,
    factor=8.0,
    low_frequency_factor=1.0,
    high_frequency_factor=4.0,
    original_context=32,
)
TRAITS: dict[str, dict[str, object]] = {
    "llama": {},
    "untied head, head size apart": {"tied_head": False, "head_size": 32},
    "odd ratio of heads": {"heads": 7, "kv_heads": 1},
    "scaled rotary embedding": {"rope": ROPE},
    "stretched rotary embedding": {
        "rope": RopeScaling(kind=RopeKind.YARN, factor=4.0, original_context=32)
    },
    "window": {"window": 9},
    "window in some layers": {"window": 9, "full_layers": (1,)},
    "biases of queries, keys and values": {"query_key_value_bias": True},
    "all biases": {"query_key_value_bias": True, "output_bias": True, "mlp_bias": True},
    "norms of queries and keys": {"query_key_norm": True},
}


@pytest.fixture(scope="module", autouse=True)
def _kernels() -> None:
    if best_kernels() is None:
        pytest.skip("the C++ kernels cannot be built here")


def make_decoder(**traits: object) -> Decoder:
    sizes = {
        "layers": 3,
        "hidden": 64,
        "heads": 4,
        "kv_heads": 2,
        "head_size": 16,
        "mlp": 96,
        "vocabulary": 61,
        "context": 256,
    }
    decoder = new_decoder(ModelConfig(**(sizes | traits)), seed=1).eval()
    generator = torch.Generator().manual_seed(2)
    with torch.no_grad():
        for name, parameter in decoder.named_parameters():
            if parameter.dim() == 1:
                spread = torch.randn(parameter.shape, generator=generator) * 0.2
                parameter.copy_(spread + (0 if name.endswith("bias") else 1))
    return decoder


def stored_as(decoder: Decoder, kind: str) -> tuple[Decoder, Decoder]:
    """The decoder with weights of that kind, and one with the same weights in float32."""
    if kind == "float32":
        return decoder, decoder
    kept = decoder.bfloat16()
    if kind in ("int8", "int4"):
        pack_decoder(kept, WeightFormat(kind), WeightFormat(kind))
    wide = new_decoder(kept.config, seed=1).eval()
    state = {}
    for name in wide.state_dict():
        owner, _, leaf = name.rpartition(".")
        state[name] = plain(kept.get_submodule(owner), leaf)
    wide.load_state_dict(state)
    return kept, wide


def plain(module: nn.Module, leaf: str) -> Tensor:
    if not isinstance(module, PackedLinear | PackedEmbedding):
        return getattr(module, leaf).float()
    if leaf == "bias":
        return module.bias_N.float()
    return module.packed.dequantize()


def make_cache(decoder: Decoder, blocks: int = 40, block_tokens: int = 4, **changes) -> PagedCache:
    return PagedCache(decoder.config, blocks=blocks, block_tokens=block_tokens, **changes)


def mixed_batches() -> list[StepBatch]:
    """Two sequences are read in parts; while they decode a third begins and a fourth goes on."""
    table_SX = torch.randperm(40, generator=torch.Generator().manual_seed(3)).view(4, 10)
    steps = [
        _batch(table_SX, {}, {0: (0, 11), 1: (0, 3), 3: (0, 24)}),
        _batch(table_SX, {0: 11, 1: 3}, {2: (0, 9), 3: (24, 7)}),
        _batch(table_SX, {0: 12, 1: 4, 2: 9}, {}),
        _batch(table_SX, {3: 31}, {0: (13, 25)}),
    ]
    assert any(len(batch.token_M) > MOST_ROWS for batch in steps), "one of them is large"
    return steps


def _batch(table_SX: Tensor, decodes: dict[int, int], parts: dict[int, tuple[int, int]]):
    position, sequence, chunks, wanted = [*decodes.values()], [*decodes], [], []
    wanted = list(range(len(decodes)))
    for row, (start, count) in parts.items():
        chunks.append(Chunk(first=len(position), count=count, sequence=row, start=start))
        position += range(start, start + count)
        sequence += [row] * count
        wanted.append(len(position) - 1)
    tokens = random_tokens(len(position), seed=len(position))
    return StepBatch(
        token_M=torch.tensor(tokens),
        position_M=torch.tensor(position),
        sequence_M=torch.tensor(sequence),
        table_SX=table_SX,
        wanted_W=torch.tensor(wanted),
        decodes=len(decodes),
        chunks=tuple(chunks),
        decode_blocks=max((at // 4 + 1 for at in decodes.values()), default=0),
    )


def run(executor: Executor) -> Tensor:
    return torch.cat([executor.run(batch).land() for batch in mixed_batches()])


def error(found: Tensor, wanted: Tensor) -> float:
    return float((found - wanted).norm() / wanted.norm())


@pytest.mark.parametrize("kind", list(TOLERANCE))
@pytest.mark.parametrize("traits", list(TRAITS))
def test_steps_give_what_torch_gives(kind, traits):
    kept, wide = stored_as(make_decoder(**TRAITS[traits]), kind)
    executor = KernelExecutor(kept, make_cache(kept))
    wanted = run(TorchExecutor(wide, make_cache(wide)))
    assert error(run(executor), wanted) < TOLERANCE[kind]


@pytest.mark.parametrize("kind", list(TOLERANCE))
def test_every_level_gives_what_torch_gives(kind):
    kept, wide = stored_as(make_decoder(window=9, full_layers=(1,)), kind)
    wanted = run(TorchExecutor(wide, make_cache(wide)))
    for kernels in all_kernels():
        found = run(KernelExecutor(kept, make_cache(kept), kernels=kernels))
        assert error(found, wanted) < TOLERANCE[kind], kernels.name


@pytest.mark.parametrize("kind", ["float32", "bfloat16"])
def test_keys_and_values_lie_where_torch_puts_them(kind):
    """So that a step may be done by either."""
    kept, wide = stored_as(make_decoder(), kind)
    mine, its = make_cache(kept), make_cache(wide)
    run(KernelExecutor(kept, mine))
    run(TorchExecutor(wide, its))
    for one, other in zip((*mine.keys, *mine.values), (*its.keys, *its.values), strict=True):
        assert error(one, other) < TOLERANCE[kind]


def test_a_part_of_the_layers_gives_what_torch_gives():
    """As where a model is cut over devices."""
    decoder = make_decoder()
    batch = mixed_batches()[0]
    cache, its = (make_cache(decoder, start=1, stop=3) for _ in range(2))
    mine, torchs = KernelExecutor(decoder, cache), TorchExecutor(decoder, its)
    with torch.inference_mode():
        x_BTE = mine.embed(batch)
        found, wanted = mine.layers(x_BTE, batch), torchs.layers(x_BTE, batch)
    assert error(found, wanted) < TOLERANCE["float32"]


@pytest.mark.parametrize("traits", [{}, {"window": 9, "full_layers": (1,)}])
def test_in_float32_a_core_emits_the_tokens_that_plain_decoding_gives(traits):
    """Few blocks: some are evicted and read again."""
    decoder = make_decoder(**traits)
    core = Core(KernelExecutor(decoder, make_cache(decoder, blocks=14)), rows=3, chunk_tokens=9)
    prompts = [tuple(random_tokens(length, seed=length)) for length in (5, 21, 12, 30, 5)]
    sequences = [core.add(Request(tokens=prompt, max_tokens=16)) for prompt in prompts]
    finish(core)
    assert core.stats().evictions, "blocks were too many"
    for prompt, sequence in zip(prompts, sequences, strict=True):
        tokens = list(prompt)
        with torch.inference_mode():
            for _ in range(16):
                tokens.append(int(decoder(torch.tensor([tokens]))[0, -1].argmax()))
        assert sequence.tokens == tokens


def test_models_that_no_vector_holds_are_left_to_torch():
    decoder = make_decoder(head_size=10)
    assert not serves(decoder)
    assert type(executor_of(decoder, make_cache(decoder))) is TorchExecutor
    with pytest.raises(ValueError, match="C\\+\\+ kernels"):
        KernelExecutor(decoder, make_cache(decoder))


def test_models_are_left_to_torch_where_there_are_no_kernels(monkeypatch):
    decoder = make_decoder()
    assert type(executor_of(decoder, make_cache(decoder))) is KernelExecutor
    monkeypatch.setattr("tensor_llm.serving.kernel_executor.best_kernels", lambda: None)
    assert type(executor_of(decoder, make_cache(decoder))) is TorchExecutor


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_large_steps_are_left_to_torch_in_float32_only(dtype):
    decoder = make_decoder().to(dtype)
    large, _, small, _ = mixed_batches()
    executor = KernelExecutor(decoder, make_cache(decoder))
    assert executor._is_large(large) is (dtype is torch.float32)
    assert not executor._is_large(small)
