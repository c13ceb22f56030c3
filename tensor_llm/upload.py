"""Numbers from the host to a device without waiting for it. Knows nothing of what they mean."""

from collections.abc import Sequence

import torch
from torch import Tensor


def upload(
    values: Sequence[int] | Sequence[float] | Sequence[bool],
    dtype: torch.dtype,
    device: torch.device | str,
) -> Tensor:
    """A tensor (N); on CUDA the copy is queued behind what the device has to do."""
    if torch.device(device).type != "cuda":
        return torch.tensor(values, dtype=dtype, device=device)
    # torch keeps pinned memory until the copies from it have happened
    pinned = torch.tensor(values, dtype=dtype, pin_memory=True)
    return pinned.to(device, non_blocking=True)


class Download:
    """Tensors on their way to the host: begun at once, waited for by `read`."""

    def __init__(self, *tensors: Tensor) -> None:
        self._event: torch.cuda.Event | None = None
        self._tensors = tensors
        if tensors[0].device.type == "cuda":
            self._tensors = tuple(one.to("cpu", non_blocking=True) for one in tensors)
            self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]  # torch's
            self._event.record(torch.cuda.current_stream(tensors[0].device))

    def read(self) -> list[list[float]]:
        """The numbers of each tensor; ints where it holds such."""
        if self._event is not None:
            self._event.synchronize()
        return [one.tolist() for one in self._tensors]
