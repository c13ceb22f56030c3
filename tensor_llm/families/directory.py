"""A directory with a model of either layout, seen as this package sees models: its config, where
each tensor lies under our name for it, and the texts that go with it.

Owns which tensors a directory must have. Knows nothing of torch; no weight is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from noidle.errors import CheckpointError, printable
from tensor_llm.config import ModelConfig
from tensor_llm.families.config_file import read_config_file
from tensor_llm.families.fields import Fields
from tensor_llm.families.files import (
    CONFIG_FILE,
    GENERATION_FILE,
    TOKENIZER_FILE,
    stored_tensors,
    weights_listing,
)
from tensor_llm.families.names import HEAD, is_derived, their_name
from tensor_llm.families.texts import read_texts
from tensor_llm.json_file import read_json
from tensor_llm.parts import tensor_shapes
from tensor_llm.tensor_file import StoredTensor

FLOATS = ("F32", "BF16", "F16")
FORMATS = ("int8", "int4")


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """What a directory holds; every plain tensor has the shape the config asks for."""

    folder: Path
    config: ModelConfig
    # by our names; NAME.int8 or NAME.int4 with NAME.scale where a weight is packed
    tensors: Mapping[str, StoredTensor]
    tokenizer: Path
    # jinja2
    chat_template: str | None
    # how tokens are written, by what the template calls them
    special_tokens: Mapping[str, str]
    # whether it is laid out as transformers does it
    foreign: bool

    @property
    def bos(self) -> str | None:
        return self.special_tokens.get("bos_token")

    @property
    def eos(self) -> str | None:
        return self.special_tokens.get("eos_token")

    @property
    def format(self) -> str | None:
        """int8 or int4 where the layers' weights are packed."""
        names = [name for name in self.tensors if name.startswith("layers.")]
        return next((one for one in reversed(FORMATS) for n in names if n.endswith(one)), None)

    @property
    def weight_bytes(self) -> int:
        return sum(tensor.bytes for tensor in self.tensors.values())


def read_config(folder: Path) -> ModelConfig:
    """Of either layout.

    Raises:
        CheckpointError: config.json, or generation_config.json, is missing or malformed.
    """
    return _config(folder)[0]


def read_directory(folder: Path) -> Source:
    """
    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
    """
    config, foreign = _config(folder)
    found = stored_tensors(folder)
    listing = weights_listing(folder)
    tensors = _theirs(config, found, listing) if foreign else _ours(config, found, listing)
    texts = read_texts(folder)
    return Source(
        folder=folder,
        config=config,
        tensors=tensors,
        tokenizer=folder / TOKENIZER_FILE,
        chat_template=texts.chat_template,
        special_tokens=texts.tokens,
        foreign=foreign,
    )


def _config(folder: Path) -> tuple[ModelConfig, bool]:
    path = folder / CONFIG_FILE
    data = read_json(path)
    if "architecture" in data:
        return ModelConfig.from_json(data, path), False
    generation = folder / GENERATION_FILE
    fields = Fields(read_json(generation), generation) if generation.exists() else None
    return read_config_file(data, path, fields), True


def _theirs(
    config: ModelConfig, found: Mapping[str, StoredTensor], listing: Path
) -> dict[str, StoredTensor]:
    shapes = tensor_shapes(config)
    names = {name: their_name(name) for name in shapes}
    spared = {name for name in found if is_derived(name)}
    if config.tied_head and HEAD in found:
        # some files hold a tied head a second time; transformers reads the embedding
        _check_plain(found[HEAD], (config.vocabulary, config.hidden))
        spared.add(HEAD)
    _check_names(listing, found, set(names.values()), spared)
    for name, shape in shapes.items():
        _check_plain(found[names[name]], shape)
    return {name: found[theirs] for name, theirs in names.items()}


def _ours(
    config: ModelConfig, found: Mapping[str, StoredTensor], listing: Path
) -> dict[str, StoredTensor]:
    shapes = tensor_shapes(config)
    forms = {name: _form(name, found) for name in shapes}
    _check_names(listing, found, {one for form in forms.values() for one in form}, set())
    for name, form in forms.items():
        if form == (name,):
            _check_plain(found[name], shapes[name])
        else:
            _check_type(found[form[0]], "U8")
            _check_type(found[form[1]], "BF16")
    return {one: found[one] for form in forms.values() for one in form}


def _form(name: str, found: Mapping[str, StoredTensor]) -> tuple[str, ...]:
    """Under which names a weight lies: its own, or those of its codes and scales."""
    for format_ in FORMATS:
        if f"{name}.{format_}" in found:
            return f"{name}.{format_}", f"{name}.scale"
    return (name,)


def _check_names(
    listing: Path, found: Mapping[str, StoredTensor], wanted: set[str], spared: set[str]
) -> None:
    for name in sorted(wanted - found.keys()):
        raise CheckpointError.of(listing, "this tensor is missing", name)
    for name in sorted(found.keys() - wanted - spared):
        fault = "the config has no such tensor"
        raise CheckpointError.of(found[name].path, fault, printable(name, 200))


def _check_plain(tensor: StoredTensor, shape: tuple[int, ...]) -> None:
    _check_shape(tensor, shape)
    if tensor.dtype not in FLOATS:
        fault = f"type {tensor.dtype}: allowed is {', '.join(FLOATS)}"
        raise CheckpointError.of(tensor.path, fault, tensor.name)


def _check_shape(tensor: StoredTensor, wanted: tuple[int, ...]) -> None:
    if tensor.shape != wanted:
        fault = f"shape {tensor.shape}: the config wants {wanted}"
        raise CheckpointError.of(tensor.path, fault, tensor.name)


def _check_type(tensor: StoredTensor, wanted: str) -> None:
    if tensor.dtype != wanted:
        raise CheckpointError.of(
            tensor.path, f"type {tensor.dtype}: allowed is {wanted}", tensor.name
        )
