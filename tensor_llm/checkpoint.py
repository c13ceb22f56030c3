"""Models on disk: a revision written as a whole, and models of either layout read onto the devices
they are meant for.

Knows nothing of who trains or asks."""

import dataclasses
import hashlib
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
import torch
from torch import Tensor

from noidle.errors import CheckpointError
from noidle.snapshot import ModelInfo
from tensor_llm.assembly import assemble
from tensor_llm.chat import ChatTemplate
from tensor_llm.config import ModelConfig
from tensor_llm.families.directory import Source, read_directory
from tensor_llm.families.files import (
    CHAT_TEMPLATE_FILE,
    CONFIG_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    weight_files,
)
from tensor_llm.kernels.linear import PackedEmbedding, PackedLinear
from tensor_llm.model import Decoder
from tensor_llm.parts import tensor_shapes
from tensor_llm.quantization import WeightFormat
from tensor_llm.store import CHECKPOINT_FILE, ModelStore, read_config
from tensor_llm.tokenizer import Tokenizer
from tensor_llm.train_state import TrainState
from tensor_llm.weights import write_tensors

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
    # absent: it has no chat template
    chat: ChatTemplate | None
    # where it came from; its weights may still be read from there
    source: Source
    load_ms: float
    # of this process, before loading and after: what is mapped counts from its first use
    working_set_before_bytes: int
    working_set_after_bytes: int

    @property
    def config(self) -> ModelConfig:
        return self.model.config

    @property
    def format(self) -> str | None:
        """int8 or int4 where the files hold packed weights."""
        return self.source.format


def read_tokenizer(source: Source) -> Tokenizer:
    """
    Raises:
        CheckpointError: it is no tokenizer, or has more tokens than the model.
    """
    # a pipe would be waited for
    if not source.tokenizer.is_file():
        raise CheckpointError.of(source.tokenizer, "cannot be read: there is no such plain file")
    tokenizer = Tokenizer.load(source.tokenizer)
    if tokenizer.vocabulary > source.config.vocabulary:
        fault = f"{tokenizer.vocabulary} tokens: the config allows {source.config.vocabulary}"
        raise CheckpointError.of(source.tokenizer, fault, "vocabulary")
    return tokenizer


def read_chat(source: Source) -> ChatTemplate | None:
    """
    Raises:
        CheckpointError: the chat template cannot be used.
    """
    if source.chat_template is None:
        return None
    separate = source.folder / CHAT_TEMPLATE_FILE
    return ChatTemplate(
        source.chat_template,
        bos=source.bos or "",
        eos=source.eos or "",
        tokens=source.special_tokens,
        path=separate if separate.exists() else source.folder / TOKENIZER_CONFIG_FILE,
    )


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
    side_files: Mapping[str, bytes] | None = None,
) -> ModelInfo:
    """Writes a whole revision, or nothing; it is not yet the current one. `side_files`: what
    else goes with the model, such as its chat template, by file name."""
    about = {"step": step, "bytes_per_token": bytes_per_token}
    with store.writing(name, revision) as folder:
        write_tensors(_own_tensors(model), folder / WEIGHTS_FILE)
        (folder / CONFIG_FILE).write_text(json.dumps(model.config.to_json(), indent=1))
        (folder / TOKENIZER_FILE).write_text(tokenizer.to_json(), encoding="utf-8")
        (folder / CHECKPOINT_FILE).write_text(json.dumps(about, indent=1))
        for file, content in (side_files or {}).items():
            (folder / file).write_bytes(content)
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
    format: WeightFormat | None = None,  # noqa: A002 -- the field's word
) -> LoadedModel:
    """Loads a model from a folder of either layout, straight to its devices. `dtype` None: as
    stored, but float16 becomes bfloat16 on the CPU; there, what needs no conversion stays
    memory-mapped. Packed weights stay packed on the CPU unless a type is asked for; `format`
    packs plain ones there, one at a time.

    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
    """
    began_s, before = time.perf_counter(), _working_set()
    source = read_directory(folder)
    tokenizer = read_tokenizer(source)
    device_of = place if callable(place) else _everywhere(torch.device(place))
    model = assemble(source, device_of=device_of, dtype=dtype, format_=format)
    name, revision = name or folder.name, revision or _revision_of(folder)
    return LoadedModel(
        name=name,
        revision=revision,
        model=model,
        tokenizer=tokenizer,
        info=_info(source, name, revision),
        chat=read_chat(source),
        source=source,
        load_ms=1000 * (time.perf_counter() - began_s),
        working_set_before_bytes=before,
        working_set_after_bytes=_working_set(),
    )


def load_model(
    store: ModelStore,
    name: str,
    revision: str | None = None,
    *,
    place: Place = "cpu",
    dtype: torch.dtype | None = torch.float32,
    format: WeightFormat | None = None,  # noqa: A002 -- the field's word
) -> LoadedModel:
    """Loads a revision from the store, by default the current one; see `load_folder`.

    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
    """
    info = store.info(name, revision)
    folder = store.directory(name, info.revision)
    loaded = load_folder(
        folder, name=name, revision=folder.name, place=place, dtype=dtype, format=format
    )
    return dataclasses.replace(loaded, info=info)


def load_state(store: ModelStore, name: str, revision: str) -> TrainState | None:
    """What training needs to go on from a revision; None where it was saved without."""
    folder = store.directory(name, revision)
    return TrainState.read(folder, tensor_shapes(read_config(folder)))


def _own_tensors(model: Decoder) -> dict[str, Tensor]:
    """Each tensor once: a tied head goes by the embedding's name."""
    if any(isinstance(part, PackedLinear | PackedEmbedding) for part in model.modules()):
        raise ValueError("model: packed weights cannot be saved; allowed are plain ones")
    tensors: dict[str, Tensor] = dict(model.named_parameters())
    if model.config.tied_head:
        # where the head lies on another device it is a tensor of its own, yet the same numbers
        tensors.pop("output.weight", None)
    return tensors


def _everywhere(device: torch.device) -> Callable[[str], torch.device]:
    return lambda _: device


def _revision_of(folder: Path) -> str:
    """Tells apart what lies in a folder of a person's own, without reading the weights."""
    digest = hashlib.blake2b((folder / CONFIG_FILE).read_bytes(), digest_size=4)
    for path in weight_files(folder):
        status = path.stat()
        digest.update(f"{path.name} {status.st_size} {status.st_mtime_ns}".encode())
    return f"folder-{digest.hexdigest()}"


def _info(source: Source, name: str, revision: str) -> ModelInfo:
    config = source.config
    return ModelInfo(
        name=name,
        revision=revision,
        context=config.context,
        parameters=config.parameters,
        weight_bytes=source.weight_bytes,
        kv_bytes_per_token=config.kv_bytes_per_token(),
    )


def _working_set() -> int:
    return int(psutil.Process().memory_info().rss)
