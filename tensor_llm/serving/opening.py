"""From a loaded model to a serving core on one device.

Owns which executor serves it, and in which type and how large blocks keys and values are kept."""

import time
from collections.abc import Callable

import torch

from tensor_llm.checkpoint import LoadedModel
from tensor_llm.kernels.linear import PackedLinear
from tensor_llm.model import Decoder
from tensor_llm.serving.core import Core
from tensor_llm.serving.executor import Executor
from tensor_llm.serving.kernel_executor import KernelExecutor, serves
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor

CHUNK_TOKENS = 512
"""Tokens of prompts a step reads where nobody paces it: half of them are read a twelfth slower, and
make others wait half as long."""
# long runs of memory read faster; shorter blocks share more of a prefix
_CPU_BLOCK_TOKENS, _BLOCK_TOKENS = 32, 16


def open_core(
    loaded: LoadedModel,
    *,
    device: torch.device | str = "cpu",
    rows: int = 1,
    kv_tokens: int | None = None,
    chunk: int | Callable[[], int] | None = None,
    kv_dtype: torch.dtype | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Core:
    """A core for `rows` sequences at once, over a model that lies on `device`.

    `kv_tokens` bounds what all of them hold together, by default the model's context.

    Raises:
        ValueError: kv_tokens or rows are below 1.
    """
    model, device = loaded.model, torch.device(device)
    tokens = model.config.context if kv_tokens is None else kv_tokens
    if tokens < 1:
        raise ValueError(f"kv_tokens = {tokens}: allowed is 1 or more")
    size = _CPU_BLOCK_TOKENS if device.type == "cpu" else _BLOCK_TOKENS
    cache = PagedCache(
        model.config,
        blocks=-(-tokens // size),
        block_tokens=size,
        device=device,
        dtype=kv_dtype or kv_dtype_of(loaded, device),
    )
    return Core(
        executor_of(model, cache),
        rows=rows,
        chunk_tokens=CHUNK_TOKENS if chunk is None else chunk,
        salt=f"{loaded.name}/{loaded.revision}",
        clock=clock,
    )


def executor_of(model: Decoder, cache: PagedCache) -> Executor:
    """The fastest for where the model lies and how its weights are kept."""
    if cache.device.type == "cpu" and serves(model):
        return KernelExecutor(model, cache)
    return TorchExecutor(model, cache)


def kv_dtype_of(loaded: LoadedModel, device: torch.device | str) -> torch.dtype:
    """What keys and values are kept in: the type the model computes in, bfloat16 where its
    weights are packed."""
    if torch.device(device).type == "cpu" and isinstance(loaded.model.output, PackedLinear):
        return torch.bfloat16
    return loaded.model.norm.weight.dtype
