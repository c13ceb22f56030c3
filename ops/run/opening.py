"""Puts a model into this process's memory, as a person wants it, and measures that.

Owns what the choices of types, threads and device mean for loading. Imports torch when a model is
opened, not before."""

import os
import sys
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

import psutil

from noidle.errors import ConfigError
from ops.metrics import cgroup
from ops.run.figures import LoadFigures
from ops.run.whereabouts import Whereabouts

if TYPE_CHECKING:
    from tensor_llm.checkpoint import LoadedModel


class WeightType(StrEnum):
    """How weights lie in memory."""

    FLOAT32 = "float32"
    BFLOAT16 = "bfloat16"
    INT8 = "int8"
    INT4 = "int4"

    @property
    def packed(self) -> bool:
        return self in (WeightType.INT8, WeightType.INT4)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """Everything of a run that is not about one text."""

    # absent: as stored
    dtype: WeightType | None = None
    # absent: by a quick measurement
    threads: int | None = None
    # as torch names it
    device: str = "cpu"


@dataclass(frozen=True, slots=True, kw_only=True)
class Opened:
    """A model in memory."""

    model: "LoadedModel"
    choice: Choice
    figures: LoadFigures


def open_model(where: Whereabouts, choice: Choice) -> Opened:
    """
    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
        ConfigError: there is no such device here, or the model is packed in another way already.
    """
    from tensor_llm.openmp import spin_shortly

    spin_shortly(os.environ)
    # an import first: what torch itself takes is no part of a model's working set
    import torch

    from tensor_llm.checkpoint import load_folder
    from tensor_llm.page_cache import resident_share, temperature
    from tensor_llm.quantization import WeightFormat

    _check_device(choice.device)
    _prepare_cores(choice)
    dtype, packing = choice.dtype, None
    if dtype is not None and dtype.packed:
        packing = WeightFormat(dtype.value)
    plain = getattr(torch, dtype) if dtype is not None and packing is None else None
    warmth = temperature(resident_share(where.weight_files()))
    model = load_folder(
        where.folder,
        name=where.name,
        revision=where.revision,
        place=choice.device,
        dtype=plain,
        format=packing,
    )
    if packing is not None and model.format not in (None, packing):
        allowed = f"{model.format}, as it is packed already, float32 or bfloat16"
        raise ConfigError.of("--dtype", packing.value, allowed)
    figures = LoadFigures(
        load_ms=model.load_ms,
        temperature=warmth,
        before_bytes=model.working_set_before_bytes,
        after_bytes=model.working_set_after_bytes,
    )
    return Opened(model=model, choice=choice, figures=figures)


def room_tokens(opened: Opened) -> int:
    """Tokens of cache for a conversation: the context, or what half of the free memory holds."""
    config = opened.model.config
    room = psutil.virtual_memory().available // 2
    return max(1, min(config.context, room // config.kv_bytes_per_token()))


def _check_device(device: str) -> None:
    import torch

    try:
        torch.empty(1, device=device)
    # a wrong name, no such device, or a torch built without its kind
    except (RuntimeError, AssertionError) as error:
        words = str(error).splitlines()[0]
        raise ConfigError.of(
            "--device", device, f"a device of this host, as torch names it: {words}"
        ) from None


def _prepare_cores(choice: Choice) -> None:
    """Kernels and threads, before any time is taken; a person should know why the first run on
    a machine is slow to start."""
    import torch

    from tensor_llm.kernels import builder
    from tensor_llm.threads import use_threads

    if choice.device == "cpu" and builder.must_build():
        sys.stderr.write("building the CPU's kernels, once for this machine …\n")
        sys.stderr.flush()
    if choice.threads is not None:
        torch.set_num_threads(choice.threads)
    elif choice.device == "cpu":
        use_threads(cgroup.cores())
