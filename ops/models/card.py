"""What a person wants to know of a model, read from its small files and the headers of its
weights; no weight is read and no torch needed."""

from collections import Counter
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict

from noidle.errors import CheckpointError
from tensor_llm.families.directory import Source, read_directory
from tensor_llm.store import ModelStore

# as safetensors spells them, and as `--dtype` does
_PLAIN = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}


class Card(BaseModel):
    """One model. What could not be read is absent, and `fault` says why."""

    model_config = ConfigDict(frozen=True)

    name: str
    folder: str
    # the current one; absent: a folder outside the store has none
    revision: str | None = None
    # all that are kept, oldest first
    revisions: tuple[str, ...] = ()
    family: str | None = None
    parameters: int | None = None
    # int8, int4, or the type that most bytes have: float32, bfloat16, float16
    format: str | None = None
    # all files of all revisions
    disk_bytes: int = 0
    # of the current revision
    weight_bytes: int | None = None
    context: int | None = None
    fault: str | None = None


class FullCard(Card):
    """One model, in all details."""

    # hidden size, layers, heads, …; see tensor_llm.config
    config: dict[str, Any] = {}
    # bytes by type of tensor
    types: dict[str, int] = {}
    chat_template: bool = False
    weight_files: int = 0


def stored_cards(store: ModelStore) -> list[Card]:
    return [stored_card(store, name) for name in store.names()]


def stored_card(store: ModelStore, name: str) -> Card:
    """A model whose files cannot be used is shown, too: somebody may want to remove it."""
    revision = store.current(name)
    try:
        folder = store.directory(name)
        card = _card(name, read_directory(folder))
    except CheckpointError as error:
        card = Card(name=name, folder="", fault=str(error))
        folder = None
    kept = tuple(store.revisions(name))
    size = sum(_disk_bytes(store.directory(name, one)) for one in kept)
    about = {"revision": revision, "revisions": kept, "disk_bytes": size}
    return card.model_copy(update={**about, "folder": str(folder or "")})


def full_card(
    name: str, folder: Path, revision: str | None, revisions: tuple[str, ...]
) -> FullCard:
    """
    Raises:
        CheckpointError: naming the file, and the tensor or field, that cannot be used.
    """
    source = read_directory(folder)
    card = _card(name, source)
    files = {tensor.path for tensor in source.tensors.values()}
    about = {"revision": revision, "revisions": revisions, "disk_bytes": _disk_bytes(folder)}
    return FullCard(
        **card.model_copy(update=about).model_dump(),
        config=source.config.to_json(),
        types=dict(_types(source)),
        chat_template=source.chat_template is not None,
        weight_files=len(files),
    )


def _card(name: str, source: Source) -> Card:
    config, types = source.config, _types(source)
    return Card(
        name=name,
        folder=str(source.folder),
        family=config.family,
        parameters=config.parameters,
        format=source.format or _PLAIN[types.most_common(1)[0][0]],
        weight_bytes=source.weight_bytes,
        context=config.context,
    )


def _types(source: Source) -> Counter[str]:
    found: Counter[str] = Counter()
    for tensor in source.tensors.values():
        found[tensor.dtype] += tensor.bytes
    return found


def _disk_bytes(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.rglob("*") if file.is_file())
