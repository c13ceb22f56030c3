"""What a decode step reads: a decoder's weights and sizes, and the blocks of keys and values.

Owns the rules they must keep. Knows nothing of how a step is computed.

Letters: E residual width, V vocabulary, K key/value heads, D head size, P blocks, C tokens of a
block, N outputs of a projection."""

from dataclasses import dataclass

import torch
from torch import Tensor

from tensor_llm.kernels.library import DENSE_TYPES, AnyWeight, weight_size
from tensor_llm.quantization import PackedWeight
from tensor_llm.shapes import check_shape


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """A linear layer."""

    weight: AnyWeight
    bias_N: Tensor | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerPlan:
    """One decoder layer: grouped-query attention and SwiGLU, each behind a norm."""

    attention_norm_E: Tensor
    mlp_norm_E: Tensor
    query: Projection
    key: Projection
    value: Projection
    output: Projection
    gate: Projection
    up: Projection
    down: Projection
    # norms of each head's queries and keys, as Qwen3 has them
    query_norm_D: Tensor | None = None
    key_norm_D: Tensor | None = None
    # positions a token sees, itself included
    window: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class DecoderPlan:
    """A decoder, or some of its layers.

    Raises:
        ValueError: sizes that do not fit together.
    """

    layers: tuple[LayerPlan, ...]
    # (V, E); absent, as the head, where another device has it
    embedding: AnyWeight | None
    # before the head
    norm_E: Tensor | None
    head: Projection | None
    # radians a position, float32 (D / 2)
    frequency_D: Tensor
    heads: int
    kv_heads: int
    head_size: int
    norm_epsilon: float
    # what scaled rotary embeddings multiply cosines and sines with
    rotary_scale: float = 1.0

    def __post_init__(self) -> None:
        query_width, kv_width = self.heads * self.head_size, self.kv_heads * self.head_size
        check_shape("frequency_D", self.frequency_D, self.head_size // 2)
        for layer in self.layers:
            _check(layer.query, query_width, self.hidden)
            _check(layer.key, kv_width, self.hidden)
            _check(layer.value, kv_width, self.hidden)
            _check(layer.output, self.hidden, query_width)
            _check(layer.gate, self.mlp, self.hidden)
            _check(layer.up, self.mlp, self.hidden)
            _check(layer.down, self.hidden, self.mlp)
        if self.embedding is not None:
            _check(Projection(weight=self.embedding), self.vocabulary, self.hidden)
        if self.head is not None:
            _check(self.head, self.vocabulary, self.hidden)

    @property
    def hidden(self) -> int:
        return len(self.layers[0].attention_norm_E)

    @property
    def mlp(self) -> int:
        return weight_size(self.layers[0].gate.weight)[0]

    @property
    def vocabulary(self) -> int:
        weight = self.embedding if self.head is None else self.head.weight
        return 0 if weight is None else weight_size(weight)[0]

    @property
    def fuses(self) -> bool:
        """Whether the C++ step serves these sizes and weights; torch serves all."""
        whole = all(size % 16 == 0 for size in (self.head_size, self.hidden, self.mlp))
        ends = (self.embedding, None if self.head is None else self.head.weight)
        known = all(weight is None or _kind(weight) is not None for weight in ends)
        return whole and known and all(map(_layer_fuses, self.layers))


@dataclass(frozen=True, slots=True, kw_only=True)
class KVBlocks:
    """Keys and values in blocks of tokens, one tensor (P, C, K, D) a layer, all of one shape,
    float32 or bfloat16. A cache with a row a sequence is one of long blocks."""

    keys: tuple[Tensor, ...]
    values: tuple[Tensor, ...]

    def __post_init__(self) -> None:
        first = self.keys[0]
        for name, tensor in (*_named("keys", self.keys), *_named("values", self.values)):
            check_shape(name, tensor, *first.shape)
            if tensor.dtype is not first.dtype or tensor.stride() != first.stride():
                raise ValueError(f"{name}: allowed are type and layout of the first")
        if first.dtype not in (torch.float32, torch.bfloat16):
            raise ValueError(f"keys are {first.dtype}: allowed are float32 and bfloat16")
        if first.stride()[2:] != (first.shape[3], 1):
            raise ValueError("keys: a token's heads must lie together")

    @property
    def block_tokens(self) -> int:
        return int(self.keys[0].shape[1])


def _named(name: str, tensors: tuple[Tensor, ...]) -> list[tuple[str, Tensor]]:
    return [(f"{name}[{index}]", tensor) for index, tensor in enumerate(tensors)]


def _check(projection: Projection, rows: int, columns: int) -> None:
    found = weight_size(projection.weight)
    if found != (rows, columns):
        raise ValueError(f"weight has size {found}: allowed is {(rows, columns)}")


def _kind(weight: AnyWeight) -> tuple[str, int] | None:
    """Format and group; projections of one input must agree on them."""
    if isinstance(weight, PackedWeight):
        return weight.format, weight.group
    return (str(weight.dtype), 0) if weight.dtype in DENSE_TYPES else None


def _layer_fuses(layer: LayerPlan) -> bool:
    inputs = (
        (layer.query, layer.key, layer.value),
        (layer.output,),
        (layer.gate, layer.up),
        (layer.down,),
    )
    kinds = [{_kind(projection.weight) for projection in group} for group in inputs]
    return all(len(kind) == 1 and None not in kind for kind in kinds)
