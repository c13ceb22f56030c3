"""Writes a model of either layout as a directory that transformers loads.

Owns which tensor goes into which file. Knows nothing of the store. No more than one tensor is in
memory, and that only where it is packed."""

import json
import shutil
import uuid
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from noidle.errors import CheckpointError
from tensor_llm.families.config_file import write_config_file
from tensor_llm.families.directory import Source, read_directory
from tensor_llm.families.files import (
    CONFIG_FILE,
    GENERATION_FILE,
    INDEX_FILE,
    TOKENIZER_CONFIG_FILE,
    TOKENIZER_FILE,
    WEIGHTS_FILE,
    read_side_files,
)
from tensor_llm.families.names import their_name
from tensor_llm.json_file import read_json
from tensor_llm.parts import tensor_shapes
from tensor_llm.tensor_file import ITEM_BYTES
from tensor_llm.tensor_writer import TensorWriter, tensor_bytes

LARGEST_FILE_BYTES = 5_000_000_000
Progress = Callable[[int, int, str], None]
"""Told of the bytes done, of all bytes, and of the tensor that was just done."""
_PACKED_BECOMES = "BF16"

_Planned = dict[str, tuple[str, tuple[int, ...]]]


def export(
    folder: Path,
    to: Path,
    *,
    largest_file_bytes: int = LARGEST_FILE_BYTES,
    progress: Progress | None = None,
) -> None:
    """Plain weights are written as they are, packed ones as bfloat16. `to` must be new or an
    empty folder; it appears whole or not at all.

    Raises:
        CheckpointError: the model cannot be used, has no spelling there, or `to` is not empty.
    """
    source = read_directory(folder)
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise CheckpointError.of(to, "is not empty; allowed is a new or empty folder")
    draft = to.parent / f".{to.name}-{uuid.uuid4().hex}"
    try:
        draft.mkdir(parents=True)
        _write_small_files(source, draft)
        _write_weights(source, draft, largest_file_bytes, progress)
        draft.rename(to)
    except OSError as error:
        raise CheckpointError.of(to, f"cannot be written: {error}") from None
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _write_small_files(source: Source, to: Path) -> None:
    shutil.copyfile(source.tokenizer, to / TOKENIZER_FILE)
    for name, content in read_side_files(source.folder).items():
        (to / name).write_bytes(content)
    _write_json(to / CONFIG_FILE, _config(source))
    if source.foreign:
        return
    eos_tokens = source.config.eos_tokens or _end_tokens(source.tokenizer)
    if not (to / GENERATION_FILE).exists():
        _write_json(to / GENERATION_FILE, {"eos_token_id": list(eos_tokens) or None})
    if not (to / TOKENIZER_CONFIG_FILE).exists():
        _write_json(to / TOKENIZER_CONFIG_FILE, {"tokenizer_class": "PreTrainedTokenizerFast"})


def _end_tokens(tokenizer: Path) -> tuple[int, ...]:
    # most who import this module need no tokenizer
    from tensor_llm.tokenizer import Tokenizer

    end = Tokenizer.load(tokenizer).eos_token
    return () if end is None else (end,)


def _config(source: Source) -> Mapping[str, object]:
    """As it came, where it came from transformers."""
    if source.foreign:
        return read_json(source.folder / CONFIG_FILE)
    dtypes = {tensor.dtype for name, tensor in source.tensors.items() if name == "norm.weight"}
    words = {"F32": "float32", "F16": "float16", "BF16": "bfloat16"}
    try:
        data = write_config_file(source.config)
    except ValueError as error:
        raise CheckpointError.of(source.folder / CONFIG_FILE, str(error)) from None
    return {**data, "torch_dtype": words[dtypes.pop()]}


def _write_weights(source: Source, to: Path, largest: int, progress: Progress | None) -> None:
    files = _files(_planned(source), largest)
    sizes = {name: _bytes(one) for planned in files for name, one in planned.items()}
    ours = {their_name(name): name for name in tensor_shapes(source.config)}
    names = _file_names(len(files))
    done = 0
    for file, planned in zip(names, files, strict=True):
        with TensorWriter(to / file, planned) as writer:
            for name in planned:
                writer.write(name, _data(source, ours[name]))
                done += sizes[name]
                if progress is not None:
                    progress(done, sum(sizes.values()), name)
    if len(files) > 1:
        weight_map = {
            name: file for file, planned in zip(names, files, strict=True) for name in planned
        }
        metadata = {"total_size": sum(sizes.values())}
        _write_json(to / INDEX_FILE, {"metadata": metadata, "weight_map": weight_map})


def _planned(source: Source) -> _Planned:
    planned: _Planned = {}
    for name, shape in tensor_shapes(source.config).items():
        stored = source.tensors.get(name)
        planned[their_name(name)] = (stored.dtype if stored else _PACKED_BECOMES, shape)
    return planned


def _files(planned: _Planned, largest: int) -> list[_Planned]:
    """In order, each no larger than `largest` unless it holds one tensor only."""
    files: list[_Planned] = [{}]
    size = 0
    for name, one in planned.items():
        if files[-1] and size + _bytes(one) > largest:
            files.append({})
            size = 0
        files[-1][name] = one
        size += _bytes(one)
    return files


def _file_names(count: int) -> list[str]:
    if count == 1:
        return [WEIGHTS_FILE]
    return [f"model-{index + 1:05d}-of-{count:05d}.safetensors" for index in range(count)]


def _bytes(planned: tuple[str, tuple[int, ...]]) -> int:
    dtype, shape = planned
    size = ITEM_BYTES[dtype]
    for one in shape:
        size *= one
    return size


def _data(source: Source, name: str) -> Iterable[bytes | memoryview]:
    if name in source.tensors:
        return tensor_bytes(source.tensors[name])
    # needs torch, which nothing else here does
    from tensor_llm.unpacking import unpacked_bytes

    return (unpacked_bytes(source, name),)


def _write_json(path: Path, data: Mapping[str, object]) -> None:
    path.write_text(json.dumps(data, indent=2) + "\n")
