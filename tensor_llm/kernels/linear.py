"""Linear layers and embeddings over packed weights, on any device: C++ where it runs and pays,
torch elsewhere.

Knows nothing of how layers are stacked.

Letters: B rows, T tokens, E inputs, M rows of activations (B times T), N outputs, K inputs."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from tensor_llm.kernels.library import AnyWeight, Kernels, best_kernels
from tensor_llm.quantization import PackedWeight, WeightFormat, quantize

# beyond, torch's own product of bfloat16 is as fast or faster
_MOST_ROWS_BF16 = 32


def linear(x: Tensor, weight: AnyWeight, bias_N: Tensor | None = None) -> Tensor:
    """x weight^T + bias over the last dimension, in the type of x."""
    kernels = best_kernels() if x.device.type == "cpu" else None
    rows = x.numel() // max(1, x.shape[-1])
    if kernels is None or not _pays(weight, rows) or x.requires_grad:
        return F.linear(x, _dense(kernels, weight, x.dtype), bias_N)
    y_MN = kernels.linear(x.reshape(rows, x.shape[-1]), weight, bias_N)
    return y_MN.view(*x.shape[:-1], y_MN.shape[1]).to(x.dtype)


class PackedLinear(nn.Module):
    """Takes the place of an `nn.Linear` whose weight has been packed; for inference only."""

    def __init__(self, packed: PackedWeight, bias_N: Tensor | None = None) -> None:
        super().__init__()
        self.packed = packed
        self.bias_N = bias_N

    def forward(self, x_BTE: Tensor) -> Tensor:
        return linear(x_BTE, self.packed, self.bias_N)


class PackedEmbedding(nn.Module):
    """Takes the place of an `nn.Embedding`; may share its weight with the head."""

    def __init__(self, packed: PackedWeight, dtype: torch.dtype) -> None:
        super().__init__()
        self.packed = packed
        self.dtype = dtype

    def forward(self, token_BT: Tensor) -> Tensor:
        x_ME = self.packed.pick(token_BT.reshape(-1))
        return x_ME.view(*token_BT.shape, -1).to(self.dtype)


def pack_linears(module: nn.Module, format_: WeightFormat) -> None:
    """Replaces every `nn.Linear` below `module`, one at a time, so that no more than one weight
    is held twice."""
    for name, child in list(module.named_children()):
        if isinstance(child, nn.Linear):
            bias_N = None if child.bias is None else child.bias.detach()
            packed = pack(child.weight.detach(), format_)
            setattr(module, name, PackedLinear(packed, bias_N))
        else:
            pack_linears(child, format_)


def pack(weight_NK: Tensor, format_: WeightFormat) -> PackedWeight:
    """Packs a weight, in C++ where that runs.

    Raises:
        ValueError: a weight is not finite.
    """
    kernels = best_kernels() if weight_NK.device.type == "cpu" else None
    return (kernels.quantize if kernels else quantize)(weight_NK, format_)


def _pays(weight: AnyWeight, rows: int) -> bool:
    if isinstance(weight, PackedWeight):
        return True
    return weight.dtype is torch.bfloat16 and weight.is_contiguous() and rows <= _MOST_ROWS_BF16


def _dense(kernels: Kernels | None, weight: AnyWeight, dtype: torch.dtype) -> Tensor:
    if isinstance(weight, Tensor):
        return weight.to(dtype)
    if kernels is None:
        return weight.dequantize(dtype)
    return kernels.dequantize(weight).to(dtype)
