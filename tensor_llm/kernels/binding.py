"""From this package's decoder to what a decode step reads, plain or packed.

Knows the names of the decoder's parts and nothing of how a step is computed."""

from typing import TYPE_CHECKING, Any

from torch import Tensor, nn

from tensor_llm.kernels.library import AnyWeight
from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear, pack, pack_linears
from tensor_llm.kernels.plan import DecoderPlan, LayerPlan, Projection
from tensor_llm.quantization import WeightFormat
from tensor_llm.rotary import frequencies

if TYPE_CHECKING:
    # the model may come to use these kernels itself
    from tensor_llm.model import Decoder


def plan_of(decoder: "Decoder", start: int = 0, stop: int | None = None) -> DecoderPlan:
    """The plan of the layers [start, stop) of a decoder, which lie on the CPU, and of its
    embedding and head where they lie there, too. Shares all weights."""
    config = decoder.config
    frequency_D, scale = frequencies(config)
    stop = config.layers if stop is None else stop
    has_head = _is_here(decoder.output)
    return DecoderPlan(
        layers=tuple(_layer(decoder, index) for index in range(start, stop)),
        embedding=_weight(decoder.embedding) if _is_here(decoder.embedding) else None,
        norm_E=decoder.norm.weight.detach() if has_head else None,
        head=_projection(decoder.output) if has_head else None,
        frequency_D=frequency_D,
        rotary_scale=scale,
        heads=config.heads,
        kv_heads=config.kv_heads,
        head_size=config.head_size,
        norm_epsilon=config.norm_epsilon,
    )


def pack_decoder(
    decoder: "Decoder", format_: WeightFormat, head_format: WeightFormat = WeightFormat.INT8
) -> None:
    """Packs every weight matrix in place, one at a time. The head is by default kept in 8 bits,
    for it decides between close tokens; a tied embedding reads the head's codes."""
    pack_linears(decoder.layers, format_)
    weight = decoder.output.weight.detach()
    packed = pack(weight, head_format)
    tied = decoder.config.tied_head
    embedding: nn.Module = PackedEmbedding(packed, weight.dtype) if tied else decoder.embedding
    parts: dict[str, nn.Module] = {"output": PackedLinear(packed), "embedding": embedding}
    for name, part in parts.items():
        setattr(decoder, name, part)


def _layer(decoder: "Decoder", index: int) -> LayerPlan:
    layer: Any = decoder.layers[index]
    attention, mlp = layer.attention, layer.mlp
    return LayerPlan(
        attention_norm_E=layer.attention_norm.weight.detach(),
        mlp_norm_E=layer.mlp_norm.weight.detach(),
        query=_projection(attention.query),
        key=_projection(attention.key),
        value=_projection(attention.value),
        output=_projection(attention.output),
        gate=_projection(mlp.gate),
        up=_projection(mlp.up),
        down=_projection(mlp.down),
        query_norm_D=_norm(attention.query_norm),
        key_norm_D=_norm(attention.key_norm),
        window=decoder.config.window_of(index),
    )


def _norm(norm: Any) -> Tensor | None:
    return None if norm is None else norm.weight.detach()


def _projection(module: Any) -> Projection:
    if isinstance(module, PackedLinear):
        return Projection(weight=module.packed, bias_N=module.bias_N)
    bias_N = None if module.bias is None else module.bias.detach()
    return Projection(weight=module.weight.detach(), bias_N=bias_N)


def _weight(module: Any) -> AnyWeight:
    if isinstance(module, PackedEmbedding | PackedLinear):
        return module.packed
    weight: Tensor = module.weight.detach()
    return weight


def _is_here(module: nn.Module) -> bool:
    weight = _weight(module)
    tensor = weight if isinstance(weight, Tensor) else weight.codes
    return tensor.device.type == "cpu"
