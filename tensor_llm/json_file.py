"""JSON files from outside, read within bounds: one object, no name twice, no number that JSON
does not have. Knows nothing of what the fields mean."""

import json
import stat
from pathlib import Path
from typing import Any, NoReturn

from noidle.errors import CheckpointError, printable, shorten

LARGEST_JSON_BYTES = 1 << 20


def read_json(path: Path, largest_bytes: int = LARGEST_JSON_BYTES) -> dict[str, Any]:
    """
    Raises:
        CheckpointError: the file is missing, absurdly large, or not one JSON object.
    """
    return parse_json(read_bytes(path, largest_bytes), path)


def read_bytes(path: Path, largest_bytes: int) -> bytes:
    """A whole small file.

    Raises:
        CheckpointError: it is missing, no plain file, or larger.
    """
    try:
        status = path.stat()
        # a pipe or a device would be read for ever
        if not stat.S_ISREG(status.st_mode):
            raise CheckpointError.of(path, "is no plain file")
        if status.st_size > largest_bytes:
            fault = f"has {status.st_size} bytes: allowed are {largest_bytes} bytes"
            raise CheckpointError.of(path, fault)
        with path.open("rb") as file:
            return file.read(largest_bytes)
    except OSError as error:
        raise CheckpointError.of(path, f"cannot be read: {error}") from None


def parse_json(text: bytes, path: object) -> dict[str, Any]:
    """
    Raises:
        CheckpointError: it is not one JSON object, or a name comes twice in one of its objects.
    """
    try:
        data = json.loads(text, object_pairs_hook=_once, parse_constant=_refuse)
    # UnicodeDecodeError and JSONDecodeError are ValueErrors
    except (ValueError, RecursionError) as error:
        raise CheckpointError.of(path, f"is not JSON: {printable(str(error), 200)}") from None
    if not isinstance(data, dict):
        raise CheckpointError.of(path, "allowed is one JSON object")
    return data


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError(f"{shorten(_twice(pairs))} comes twice in one object")
    return found


def _twice(pairs: list[tuple[str, Any]]) -> str:
    seen: set[str] = set()
    for name, _ in pairs:
        if name in seen:
            return name
        seen.add(name)
    raise AssertionError("no name comes twice")


def _refuse(constant: str) -> NoReturn:
    raise ValueError(f"{constant} is no number of JSON")
