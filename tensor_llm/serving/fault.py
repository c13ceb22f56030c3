"""Which faults harm one step, and which end the process. Knows nothing of how steps are made."""

import torch

# a fault of the device itself: every later call on it fails too
_FATAL: type[BaseException] = getattr(torch, "AcceleratorError", MemoryError)


def is_fatal(error: BaseException) -> bool:
    """After these the process cannot go on."""
    return isinstance(error, _FATAL) or not isinstance(error, Exception)
