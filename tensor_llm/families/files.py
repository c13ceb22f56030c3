"""Which files a model's directory has, by name; and the safetensors files among them, one or
many with an index. Knows nothing of what tensors mean."""

import re
from pathlib import Path

from noidle.errors import CheckpointError, printable, shorten
from tensor_llm.json_file import read_bytes, read_json
from tensor_llm.tensor_file import StoredTensor, read_header

CONFIG_FILE = "config.json"
WEIGHTS_FILE = "model.safetensors"
INDEX_FILE = "model.safetensors.index.json"
TOKENIZER_FILE = "tokenizer.json"
GENERATION_FILE = "generation_config.json"
TOKENIZER_CONFIG_FILE = "tokenizer_config.json"
SPECIAL_TOKENS_FILE = "special_tokens_map.json"
CHAT_TEMPLATE_FILE = "chat_template.jinja"
SIDE_FILES = (
    GENERATION_FILE,
    TOKENIZER_CONFIG_FILE,
    SPECIAL_TOKENS_FILE,
    CHAT_TEMPLATE_FILE,
)
"""What may lie beside config, weights and tokenizer."""
LARGEST_SIDE_BYTES = 4 << 20

_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,199}\.safetensors")
_MOST_FILES = 4096


def weights_listing(folder: Path) -> Path:
    """The file that says which tensors there are."""
    single = folder / WEIGHTS_FILE
    return single if single.exists() or not (folder / INDEX_FILE).exists() else folder / INDEX_FILE


def weight_files(folder: Path) -> tuple[Path, ...]:
    """The safetensors files that hold the model, in order of their names.

    Raises:
        CheckpointError: there is none, or the index is malformed or leaves the folder.
    """
    single = folder / WEIGHTS_FILE
    if weights_listing(folder) == single:
        if not single.exists():
            raise CheckpointError.of(single, f"is missing, as is {INDEX_FILE}{_instead(folder)}")
        return (single,)
    names = sorted(set(_weight_map(folder).values()))
    if len(names) > _MOST_FILES:
        fault = f"names {len(names)} files: allowed are {_MOST_FILES}"
        raise CheckpointError.of(folder / INDEX_FILE, fault, "weight_map")
    return tuple(folder / name for name in names)


def _instead(folder: Path) -> str:
    """What to do with the weights that lie there in other forms."""
    if not folder.is_dir():
        return ""
    for ending in (".gguf", ".bin", ".pth"):
        for path in sorted(folder.glob(f"*{ending}"))[:1]:
            return f"; {printable(path.name)} is not read: have transformers save it as safetensors"
    return ""


def read_side_files(folder: Path) -> dict[str, bytes]:
    """What lies beside config, weights and tokenizer, by file name.

    Raises:
        CheckpointError: one is absurdly large, or no file.
    """
    there = [name for name in SIDE_FILES if (folder / name).exists()]
    return {name: read_bytes(folder / name, LARGEST_SIDE_BYTES) for name in there}


def stored_tensors(folder: Path) -> dict[str, StoredTensor]:
    """Every tensor of a directory by its name there.

    Raises:
        CheckpointError: a file is malformed, or says another thing than the index.
    """
    files = weight_files(folder)
    if files == (folder / WEIGHTS_FILE,):
        return read_header(folder / WEIGHTS_FILE)
    weight_map = _weight_map(folder)
    found: dict[str, StoredTensor] = {}
    for path in files:
        for name, tensor in read_header(path).items():
            if weight_map.get(name) != path.name:
                raise CheckpointError.of(
                    path, f"{INDEX_FILE} has no such tensor here", printable(name, 200)
                )
            found[name] = tensor
    for name in weight_map.keys() - found.keys():
        raise CheckpointError.of(
            folder / weight_map[name], "this tensor is missing", printable(name, 200)
        )
    return found


def _weight_map(folder: Path) -> dict[str, str]:
    path = folder / INDEX_FILE
    weight_map = read_json(path, LARGEST_SIDE_BYTES).get("weight_map")
    if not isinstance(weight_map, dict) or not weight_map:
        raise CheckpointError.of(path, "allowed is an object of file names", "weight_map")
    for name, file in weight_map.items():
        # a path could lead out of the folder
        if not isinstance(file, str) or not _PLAIN_NAME.fullmatch(file):
            allowed = "allowed is the name of a safetensors file beside the index"
            raise CheckpointError.of(
                path, f"{shorten(file)}: {allowed}", f"weight_map.{printable(name, 200)}"
            )
    return weight_map
