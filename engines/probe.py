"""Asks torch which accelerators it can use, in a short process of its own.

Run as `python -m engines.probe`; prints one JSON object. Importing torch takes seconds and
hundreds of megabytes, and once it was asked for CUDA a process cannot fork: not for parents."""

import json
import sys

import torch


def main() -> None:
    accelerator = None
    if torch.accelerator.is_available():
        accelerator = torch.accelerator.current_accelerator()
    found = {
        "torch": torch.__version__,
        "cuda_built": torch.version.cuda,
        "cuda": [torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count())],
        "accelerator": accelerator.type if accelerator else None,
        "count": torch.accelerator.device_count(),
    }
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    main()
