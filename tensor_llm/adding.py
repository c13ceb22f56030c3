"""Takes models from directories into the store and out of it again.

Owns how a plain model is packed on its way. Knows nothing of how models compute.

At no time is more than one tensor in memory."""

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path

import torch

from noidle.errors import CheckpointError
from noidle.snapshot import ModelInfo
from tensor_llm.checkpoint import read_chat, read_tokenizer
from tensor_llm.families.directory import Source, read_directory
from tensor_llm.families.files import (
    CONFIG_FILE,
    INDEX_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    read_side_files,
    weight_files,
)
from tensor_llm.kernels.linear import pack
from tensor_llm.parts import packed_format, tensor_shapes
from tensor_llm.quantization import WeightFormat, packed_names, packed_shapes
from tensor_llm.store import CHECKPOINT_FILE, Draft, ModelStore, revision_name
from tensor_llm.tensor_writer import TensorWriter, tensor_bytes
from tensor_llm.tokenizer import Tokenizer
from tensor_llm.weights import TensorReader, data_of

Progress = Callable[[int, int, str], None]
"""Told of the bytes done, of all bytes, and of the tensor or file that was just done."""

# packed models run on the CPU, which has no kernels for float16
_NARROW = {"F16": "BF16"}
_PART_BYTES = 8 << 20
# to measure how long tokens are; what people ask is mostly prose, with some code
_SAMPLE = """The committee met on Tuesday to discuss the results of the survey, which had been sent
to 1,200 households in March. Most people said they would rather walk than wait; fewer than
one in ten had changed their mind since 2019. "What we need," she wrote, "isn't more data."
def mean(values: list[float]) -> float:
    return sum(values) / len(values) if values else 0.0
"""


def add_model(
    store: ModelStore,
    source_dir: Path,
    name: str,
    *,
    format: WeightFormat | None = None,  # noqa: A002 -- the field's word
    progress: Progress | None = None,
) -> ModelInfo:
    """Copies a model into the store as it is, or packs it, and makes it current.

    Raises:
        CheckpointError: the model cannot be used, the name is taken, or it is packed already.
    """
    current = store.current(name)
    if current is not None:
        fault = f"{name!r} is taken by {current}; remove it first, or choose another name"
        raise CheckpointError.of(source_dir, fault)
    source = read_directory(source_dir)
    tokenizer = read_tokenizer(source)
    # a template that cannot be used is better found now than by the first job
    read_chat(source)
    if format is not None and source.format is not None:
        fault = f"is packed as {source.format} already; allowed are plain weights"
        raise CheckpointError.of(source_dir, fault)
    try:
        with store.drafting(name) as draft:
            writing = _Adding(draft, source, progress)
            if format is None:
                writing.copy()
            else:
                writing.pack(format)
            writing.finish(tokenizer)
        store.set_current(name, draft.revision)
    except OSError as error:
        raise CheckpointError.of(source_dir, f"cannot be copied: {error}") from None
    return store.info(name, draft.revision)


def remove_model(store: ModelStore, name: str) -> None:
    """
    Raises:
        CheckpointError: there is no such model.
    """
    store.remove(name)


class _Adding:
    """One revision on its way into the store."""

    def __init__(self, draft: Draft, source: Source, progress: Progress | None) -> None:
        self._draft = draft
        self._source = source
        self._progress = progress
        self._digest = hashlib.blake2b(digest_size=4)
        self._done = 0
        self._total = source.weight_bytes

    def copy(self) -> None:
        files = weight_files(self._source.folder)
        self._total = sum(path.stat().st_size for path in files)
        names = [CONFIG_FILE]
        if files[0].name != WEIGHTS_FILE:
            names.append(INDEX_FILE)
        for name in names:
            shutil.copyfile(self._source.folder / name, self._draft.folder / name)
            self._digest.update((self._draft.folder / name).read_bytes())
        for path in files:
            self._copy_weights(path)

    def pack(self, format_: WeightFormat) -> None:
        data = json.dumps(self._source.config.to_json(), indent=1).encode()
        (self._draft.folder / CONFIG_FILE).write_bytes(data)
        self._digest.update(data + format_.encode())
        packs = self._packs(format_)
        planned = self._planned(packs)
        reader = TensorReader()
        with TensorWriter(self._draft.folder / WEIGHTS_FILE, planned) as writer:
            for name in tensor_shapes(self._source.config):
                self._write(writer, reader, name, packs.get(name))
                self._tell(self._source.tensors[name].bytes, name)

    def finish(self, tokenizer: Tokenizer) -> None:
        """Writes the small files, and names the revision by all that was written."""
        folder = self._draft.folder
        shutil.copyfile(self._source.tokenizer, folder / TOKENIZER_FILE)
        self._digest.update((folder / TOKENIZER_FILE).read_bytes())
        for name, content in read_side_files(self._source.folder).items():
            (folder / name).write_bytes(content)
            self._digest.update(content)
        about = {"step": 0, "bytes_per_token": tokenizer.bytes_per_token(_SAMPLE)}
        (folder / CHECKPOINT_FILE).write_text(json.dumps(about, indent=1))
        self._draft.revision = revision_name(0, self._digest.hexdigest())

    def _copy_weights(self, path: Path) -> None:
        with path.open("rb") as source, (self._draft.folder / path.name).open("wb") as target:
            while part := source.read(_PART_BYTES):
                target.write(part)
                self._digest.update(part)
                self._tell(len(part), path.name)

    def _tell(self, more_bytes: int, what: str) -> None:
        self._done += more_bytes
        if self._progress is not None:
            self._progress(self._done, self._total, what)

    def _packs(self, format_: WeightFormat) -> dict[str, WeightFormat]:
        config = self._source.config
        found = {name: packed_format(name, config, format_) for name in tensor_shapes(config)}
        return {name: WeightFormat(one) for name, one in found.items() if one is not None}

    def _planned(self, packs: dict[str, WeightFormat]) -> dict[str, tuple[str, tuple[int, ...]]]:
        planned: dict[str, tuple[str, tuple[int, ...]]] = {}
        for name, shape in tensor_shapes(self._source.config).items():
            if name not in packs:
                dtype = self._source.tensors[name].dtype
                planned[name] = (_NARROW.get(dtype, dtype), shape)
                continue
            codes, scales = packed_names(name, packs[name])
            rows, columns = shape
            shapes = packed_shapes(packs[name], rows, columns, packs[name].usual_group)
            planned |= {codes: ("U8", shapes[0]), scales: ("BF16", shapes[1])}
        return planned

    def _write(
        self, writer: TensorWriter, reader: TensorReader, name: str, format_: WeightFormat | None
    ) -> None:
        stored = self._source.tensors[name]
        if format_ is None and stored.dtype not in _NARROW:
            writer.write(name, map(self._counted, tensor_bytes(stored)))
            return
        if format_ is None:
            narrow = reader.read(stored).to(torch.bfloat16)
            writer.write(name, (self._counted(data_of(narrow)),))
            return
        try:
            packed = pack(reader.read(stored), format_)
        except ValueError as error:
            raise CheckpointError.of(stored.path, str(error), stored.name) from None
        for one, tensor in packed.tensors(name).items():
            writer.write(one, (self._counted(data_of(tensor)),))

    def _counted(self, part: bytes | memoryview) -> bytes | memoryview:
        self._digest.update(part)
        return part
