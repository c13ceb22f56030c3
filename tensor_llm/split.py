"""Which device holds which tensor when a decoder is cut in two. Knows nothing of speeds, or of
how activations travel."""

from dataclasses import dataclass

import torch


@dataclass(frozen=True, slots=True, kw_only=True)
class LayerSplit:
    """The embedding and the layers below `layer` lie on `first`; the other layers, the last
    norm and the head on `second`. Pass `device_of` to `load_model(place=…)`."""

    first: torch.device
    second: torch.device
    layer: int

    def device_of(self, tensor_name: str) -> torch.device:
        part, *rest = tensor_name.split(".")
        if part == "embedding":
            return self.first
        if part == "layers":
            return self.first if int(rest[0]) < self.layer else self.second
        return self.second
