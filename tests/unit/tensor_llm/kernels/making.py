"""Weights, plans and blocks for the tests of the kernels.

Tolerances: products of bfloat16 weights round activations to bfloat16 (relative error 0.4 %);
those of packed weights to 8 bits a group (1.2 %); float32 only rounds. Errors are root mean
square over the result."""

import torch
from torch import Tensor

from tensor_llm.kernels.plan import DecoderPlan, KVBlocks, LayerPlan, Projection
from tensor_llm.kernels.rows import Rows
from tensor_llm.kernels.step import DecodeStep
from tensor_llm.quantization import PackedWeight, WeightFormat, quantize

TOLERANCE = {"float32": 1e-5, "bfloat16": 0.004, "int8": 0.012, "int4": 0.012}
KINDS = list(TOLERANCE)
# smaller than a tile, no multiple of anything, several chunks, columns in several parts
SIZES = [(1, 1), (16, 32), (37, 100), (130, 257), (320, 512), (300, 1100)]
ROWS = [1, 2, 3, 5, 8, 9, 16, 17, 33, 50]


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


def make_plan(
    kind: str, *, heads: int, kv_heads: int, head_size: int = 16, extras: bool = False
) -> DecoderPlan:
    hidden, mlp, vocabulary, seed = 64, 112, 75, iter(range(1000))

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
