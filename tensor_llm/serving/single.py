"""A core for one request of one model, as large as that request. Knows nothing of loading."""

from collections.abc import Iterator

from tensor_llm.model import Decoder
from tensor_llm.serving.core import Core
from tensor_llm.serving.output import Output
from tensor_llm.serving.paged import PagedCache
from tensor_llm.serving.torch_executor import TorchExecutor

BLOCK_TOKENS = 16


def single_core(model: Decoder, tokens: int, chunk: int) -> Core:
    """Where the model lies, in the type of its norms."""
    weight = model.norm.weight
    cache = PagedCache(
        model.config,
        blocks=-(-tokens // BLOCK_TOKENS),
        block_tokens=BLOCK_TOKENS,
        device=weight.device,
        dtype=weight.dtype,
    )
    return Core(TorchExecutor(model, cache), rows=1, chunk_tokens=chunk)


def outputs_of(core: Core) -> Iterator[Output]:
    """Everything that comes out until the core has nothing to do; raises what went wrong."""
    while core.busy:
        for output in core.step():
            if output.error is not None:
                raise output.error
            yield output
