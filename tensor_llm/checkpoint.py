"""A revision of a model on disk: its weights, config and tokenizer written together, and read
back onto the devices they are meant for.

Knows nothing of who trains or asks."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor, nn

from noidle.errors import CheckpointError
from noidle.snapshot import ModelInfo
from tensor_llm.config import ModelConfig
from tensor_llm.model import Decoder
from tensor_llm.store import (
    CHECKPOINT_FILE,
    CONFIG_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    ModelStore,
    read_config,
)
from tensor_llm.tokenizer import Tokenizer
from tensor_llm.train_state import TrainState
from tensor_llm.weights import read_tensors, write_tensors

Place = torch.device | str | Callable[[str], torch.device]
"""One device for all, or the device of each tensor by its name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """A model ready to run."""

    name: str
    revision: str
    model: Decoder
    tokenizer: Tokenizer
    info: ModelInfo


def save_model(
    store: ModelStore,
    name: str,
    revision: str,
    *,
    model: Decoder,
    tokenizer: Tokenizer,
    step: int,
    bytes_per_token: float,
    state: TrainState | None = None,
) -> ModelInfo:
    """Writes a whole revision, or nothing; it is not yet the current one."""
    about = {"step": step, "bytes_per_token": bytes_per_token}
    with store.writing(name, revision) as folder:
        write_tensors(_own_tensors(model), folder / WEIGHTS_FILE)
        (folder / CONFIG_FILE).write_text(json.dumps(model.config.to_json(), indent=1))
        (folder / TOKENIZER_FILE).write_text(tokenizer.to_json(), encoding="utf-8")
        (folder / CHECKPOINT_FILE).write_text(json.dumps(about, indent=1))
        if state is not None:
            state.write(folder)
    return store.info(name, revision)


def load_folder(
    folder: Path,
    *,
    name: str | None = None,
    revision: str | None = None,
    place: Place = "cpu",
    dtype: torch.dtype | None = None,
) -> LoadedModel:
    """Loads a model from a folder of either layout, straight to its devices. `dtype` None: as
    stored, but float16 becomes bfloat16 on the CPU; there, what needs no conversion stays
    memory-mapped. Packed weights stay packed on the CPU unless a type is asked for.

    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
    """
    raise NotImplementedError


def load_model(
    store: ModelStore,
    name: str,
    revision: str | None = None,
    *,
    place: Place = "cpu",
    dtype: torch.dtype | None = torch.float32,
) -> LoadedModel:
    """Loads a revision, by default the current one, straight to its devices.

    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
    """
    info = store.info(name, revision)
    folder = store.directory(name, info.revision)
    config = read_config(folder)
    tokenizer = Tokenizer.load(folder / TOKENIZER_FILE)
    if tokenizer.vocabulary > config.vocabulary:
        fault = f"{tokenizer.vocabulary} tokens: the config allows {config.vocabulary}"
        raise CheckpointError.of(folder / TOKENIZER_FILE, fault, "vocabulary")
    device_of = place if callable(place) else _everywhere(torch.device(place))
    model = _skeleton(config)
    for key, tensor in read_tensors(
        folder / WEIGHTS_FILE, _shapes(model), device_of=device_of, dtype=dtype
    ):
        owner, _, leaf = key.rpartition(".")
        setattr(model.get_submodule(owner), leaf, nn.Parameter(tensor))
    model.tie()
    _place_head(model, device_of("output.weight"))
    return LoadedModel(
        name=name, revision=folder.name, model=model.eval(), tokenizer=tokenizer, info=info
    )


def load_state(store: ModelStore, name: str, revision: str) -> TrainState | None:
    """What training needs to go on from a revision; None where it was saved without."""
    folder = store.directory(name, revision)
    return TrainState.read(folder, _shapes(_skeleton(read_config(folder))))


def _skeleton(config: ModelConfig) -> Decoder:
    """A decoder without memory."""
    with torch.device("meta"):
        return Decoder(config)


def _own_tensors(model: Decoder) -> dict[str, Tensor]:
    """Each tensor once: a tied head goes by the embedding's name."""
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    if model.config.tied_head:
        # where the head lies on another device it is a tensor of its own, yet the same numbers
        tensors.pop("output.weight", None)
    return tensors


def _shapes(model: Decoder) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in _own_tensors(model).items()}


def _everywhere(device: torch.device) -> Callable[[str], torch.device]:
    return lambda _: device


def _place_head(model: Decoder, device: torch.device) -> None:
    """A tied head that lies elsewhere than the embedding gets a copy of its weights."""
    if model.config.tied_head and device != model.embedding.weight.device:
        model.output.weight = nn.Parameter(model.embedding.weight.detach().to(device))
