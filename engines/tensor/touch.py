"""Brings a loaded model's weights into memory, so that the first run does not pay for reading
them, and the time of a load says how long that took.

Knows nothing of where they come from."""

import mmap
from collections.abc import Iterator

import torch
from torch import Tensor

from engines.tensor.porter import Progress
from tensor_llm.model import Decoder
from tensor_llm.quantization import PackedWeight


@torch.inference_mode()
def touch(model: Decoder, progress: Progress) -> None:
    """Reads a byte of each page that lies on the host."""
    for tensor in weights_of(model):
        if tensor.device.type == "cpu" and tensor.is_contiguous() and tensor.numel():
            pages = tensor.detach().reshape(-1).view(torch.uint8)[:: mmap.PAGESIZE]
            int(pages.sum())
            progress.mark()


def weights_of(model: Decoder) -> Iterator[Tensor]:
    """Plain and packed ones; what two parts share comes twice."""
    yield from model.parameters()
    for module in model.modules():
        packed = getattr(module, "packed", None)
        if isinstance(packed, PackedWeight):
            yield packed.codes
            yield packed.scales
